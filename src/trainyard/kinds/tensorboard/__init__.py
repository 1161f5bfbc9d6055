"""TensorBoard: a viewer of training logs."""

from trainyard.kinds.kind import AGE, PHASE, Column, Kind
from trainyard.kinds.shared.labels import TENSORSTACK

KIND = Kind(
    "TensorBoard",
    "tensorboards",
    ("tb",),
    __name__,
    status=f"{__name__}.status:TensorBoardStatus",
    group=TENSORSTACK,
    is_job=False,
    is_viewer=True,
    training_containers=("tensorboard",),
    columns=(PHASE, Column("URL", "string", ".status.url"), AGE),
    order=70,
)

TENSOR_BOARDS = KIND.resource
