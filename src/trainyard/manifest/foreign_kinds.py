"""Which jobs of other systems can be converted, and how messages call them.

The converters are in `trainyard.conversion`; the reader only tells users to call them.
"""

from __future__ import annotations

import re
from typing import Any

PYTORCH = "kubeflow.org", "PyTorchJob"
MPI = "kubeflow.org", "MPIJob"
TF = "kubeflow.org", "TFJob"
JAX = "kubeflow.org", "JAXJob"
XGBOOST = "kubeflow.org", "XGBoostJob"
TRAIN = "trainer.kubeflow.org", "TrainJob"
VOLCANO = "batch.volcano.sh", "Job"
JOBSET = "jobset.x-k8s.io", "JobSet"
BATCH = "batch", "Job"
_TITLES = {
    PYTORCH: "a Kubeflow PyTorchJob",
    MPI: "a Kubeflow MPIJob",
    TF: "a Kubeflow TFJob",
    JAX: "a Kubeflow JAXJob",
    XGBOOST: "a Kubeflow XGBoostJob",
    TRAIN: "a Kubeflow TrainJob",
    VOLCANO: "a Volcano Job",
    JOBSET: "a JobSet",
    BATCH: "a Kubernetes Job",
}
RUNTIMES = ("ClusterTrainingRuntime", "TrainingRuntime")
_HEADER = re.compile(r"^#SBATCH\s", re.MULTILINE)
SBATCH_SCRIPT = "a script for Slurm's sbatch"


def group_and_kind(obj: Any) -> tuple[str, str]:
    """API group and kind of an object; empty where it has none."""
    if not isinstance(obj, dict):
        return "", ""
    return str(obj.get("apiVersion", "")).partition("/")[0], str(obj.get("kind", ""))


def title_of(obj: Any) -> str:
    """What messages call an object: ``a Kubeflow PyTorchJob``; "" if it is not converted."""
    group, kind = group_and_kind(obj)
    if group == "trainer.kubeflow.org" and kind in RUNTIMES:
        return "a runtime of a Kubeflow TrainJob"
    return _TITLES.get((group, kind), "")


def titles() -> tuple[str, ...]:
    """What messages call the kinds that are converted."""
    return tuple(_TITLES.values())


def advise_convert(title: str, file: str) -> str:
    """The message about a job of another system: how to convert and run it."""
    name = "-" if file in ("", "<stdin>", "-") else file
    return f"is {title}: `trainyard convert -f {name} | trainyard run -f -` runs it"


def is_sbatch_script(text: str) -> bool:
    """Whether a text is a script for sbatch."""
    return text.startswith("#!") and _HEADER.search(text) is not None
