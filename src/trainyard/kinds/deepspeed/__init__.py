"""DeepSpeedJob: every worker serves ssh, and worker-0 also runs ``deepspeed`` over all of them, or
what else is to, such as ``mpirun``."""

from trainyard.kinds.kind import Kind

KIND = Kind(
    "DeepSpeedJob",
    "deepspeedjobs",
    ("dj",),
    __name__,
    elastic=True,
    training_containers=("{type}",),
    budget="backoffCount",
    launches_over_ssh=True,
    launchers=("deepspeed", "mpi"),
    image="deepspeed/deepspeed",
    order=20,
)
