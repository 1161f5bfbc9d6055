"""The kinds of objects: one folder for each, and `shared/` with what several of them use.

Everything here is a pure function of its arguments: it does not await, read files of users, or ask
what time it is.
"""
