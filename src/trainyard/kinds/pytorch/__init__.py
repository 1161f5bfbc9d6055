"""PyTorchTrainingJob: ranks across replica types, launched plainly or by torchrun."""

from trainyard.kinds.kind import Kind

KIND = Kind(
    "PyTorchTrainingJob",
    "pytorchtrainingjobs",
    ("pj",),
    __name__,
    elastic=True,
    training_containers=("pytorch", "python"),
    budget="backoffCount",
    restart_policy="Never",
    launchers=("torchrun", "plain"),
    image="pytorch/pytorch",
    order=10,
)
