"""Ranks for which the others wait again and again."""
