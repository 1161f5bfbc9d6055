"""ColossalAIJob: workers serve ssh, and a launcher pod runs ``colossalai run`` over them."""

from trainyard.kinds.kind import Kind

KIND = Kind(
    "ColossalAIJob",
    "colossalaijobs",
    ("caij",),
    __name__,
    training_containers=("{type}",),
    launches_over_ssh=True,
    launchers=("colossalai",),
    image="hpcaitech/colossalai",
    order=30,
)
