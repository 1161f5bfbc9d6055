"""Puts the parts together: the embedded cluster, the controller, and what each needs of the other.

Nothing else imports both ``embedded`` and ``operator``, or gives the cluster its kinds. No decision
about jobs is made here, and nothing is printed: commands parse, call this room or the API, and
print.
"""
