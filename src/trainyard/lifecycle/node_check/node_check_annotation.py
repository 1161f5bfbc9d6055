"""The annotation of pods that are kept off nodes.

A module of its own, since what observes pods imports it.
"""

AVOIDS = "trainyard.dev/avoids"
"""On a pod: the nodes that it is kept off, since they did badly in the check before a start."""
