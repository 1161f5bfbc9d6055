"""The kinds: models, defaults, validation, legacy spellings, CRDs, names, labels, reasons.

Imports no other room.
"""
