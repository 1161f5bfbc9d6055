"""Patch formats, and server-side apply with its field managers."""
