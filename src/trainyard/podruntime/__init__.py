"""Makes pods by system calls: a program of its own, described in README.md.

It imports the standard library and itself, nothing else. What other rooms may import of it is
listed in README.md and held by a gate.
"""
