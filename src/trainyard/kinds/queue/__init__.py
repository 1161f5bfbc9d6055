"""Queue: a share of the cluster in which jobs wait for their turn."""

from trainyard.kinds.kind import AGE, Column, Kind
from trainyard.kinds.shared.labels import SCHEDULER

KIND = Kind(
    "Queue",
    "queues",
    ("q",),
    __name__,
    status=f"{__name__}.status:QueueStatus",
    group=SCHEDULER,
    is_job=False,
    namespaced=False,
    columns=(
        Column("Priority", "integer", ".spec.priority"),
        Column("Closed", "boolean", ".spec.closed"),
        Column("Running", "integer", ".status.pods.running"),
        Column("Pending", "integer", ".status.pods.pending"),
        AGE,
    ),
    order=60,
)
