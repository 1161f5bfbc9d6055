"""Puts the parts together: the embedded cluster, the controller, and what each needs of the other.

Nothing else imports both ``embedded`` and ``operator``. No decision is made here, and nothing is
printed.
"""
