"""Durable objects and their changes."""
