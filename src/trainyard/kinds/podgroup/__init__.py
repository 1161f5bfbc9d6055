"""PodGroup: pods that are scheduled all or not at all."""

from trainyard.kinds.kind import AGE, PHASE, Column, Kind
from trainyard.kinds.shared.labels import SCHEDULER

KIND = Kind(
    "PodGroup",
    "podgroups",
    ("pg",),
    __name__,
    status=f"{__name__}.status:PodGroupStatus",
    group=SCHEDULER,
    is_job=False,
    columns=(
        PHASE,
        Column("MinMember", "integer", ".spec.minMember"),
        Column("Queue", "string", ".spec.queue"),
        AGE,
    ),
    order=50,
)

POD_GROUPS = KIND.resource
