"""The TensorBoard object that a PyTorchTrainingJob asks for."""

from __future__ import annotations

from trainyard.kinds.shared.identity import Identity
from trainyard.kinds.shared.workload import Dependent, Manifest
from trainyard.kinds.tensorboard import TENSOR_BOARDS
from trainyard.kinds.tensorboard.spec import TensorBoardSpec


def tensorboard(identity: Identity, spec: TensorBoardSpec) -> Dependent:
    """Named as the job's base; it outlives the end of the job and goes with the job."""

    def manifest(name: str) -> Manifest:
        return {
            "apiVersion": TENSOR_BOARDS.api_version,
            "kind": "TensorBoard",
            "metadata": identity.metadata(name),
            "spec": spec.dump(),
        }

    return Dependent(TENSOR_BOARDS, identity.base, manifest, told_as="tensorboard")
