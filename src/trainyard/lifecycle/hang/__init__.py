"""Hangs: what ranks report, who is to blame, and what follows."""
