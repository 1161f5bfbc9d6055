"""GenericJob: any set of pods; rules say when the set has succeeded or failed."""

from trainyard.kinds.kind import Kind

KIND = Kind(
    "GenericJob",
    "genericjobs",
    ("gj",),
    __name__,
    name_label="genericjob",
    launchers=("none",),
    image="python",
    order=40,
)
REPLICA_LABEL = "genericjob-replica"
"""``<job>-<type>-<index>``."""
OWN_LABELS = (KIND.name_label, REPLICA_LABEL)
"""Labels that only pods of this kind have."""
