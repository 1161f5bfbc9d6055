"""The TensorBoard object that a PyTorchTrainingJob asks for."""

from __future__ import annotations

from trainyard.api.tensorboard import TensorBoardSpec
from trainyard.workloads.identity import Identity
from trainyard.workloads.resources import TENSOR_BOARDS
from trainyard.workloads.workload import Dependent, Manifest


def tensorboard(identity: Identity, spec: TensorBoardSpec) -> Dependent:
    """Named as the job's base; it outlives the end of the job and goes with the job."""

    def manifest(name: str) -> Manifest:
        return {
            "apiVersion": TENSOR_BOARDS.api_version,
            "kind": "TensorBoard",
            "metadata": identity.metadata(name),
            "spec": spec.dump(),
        }

    return Dependent(TENSOR_BOARDS, identity.base, manifest)
