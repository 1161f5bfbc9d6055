"""The one table of served kinds. Models are imported when first asked for: start-up is imports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainyard.api.model import Model

BATCH = "batch.tensorstack.dev"
SCHEDULER = "scheduler.tensorstack.dev"
TENSORSTACK = "tensorstack.dev"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind: its names, and where its model is.

    ``elastic`` says whether it has a scale subresource, ``is_job`` whether the controller runs it.
    """

    kind: str
    plural: str
    short_names: tuple[str, ...]
    module: str
    group: str = BATCH
    version: str = "v1beta1"
    elastic: bool = False
    is_job: bool = True
    namespaced: bool = True

    @property
    def rules(self) -> str:
        """Name of the file in ``trainyard.api.rules``."""
        return self.module

    @property
    def singular(self) -> str:
        """Lower-case kind."""
        return self.kind.lower()

    @property
    def list_kind(self) -> str:
        """Kind of a list of these."""
        return f"{self.kind}List"

    @property
    def api_version(self) -> str:
        """``group/version``."""
        return f"{self.group}/{self.version}"

    @property
    def resource(self) -> str:
        """``plural.group``, the name of the CRD."""
        return f"{self.plural}.{self.group}"

    @property
    def model(self) -> type[Model]:
        """The model of one object; imports its module."""
        return _model(self.module, self.kind)


@cache
def _model(module: str, kind: str) -> type[Model]:
    model: type[Model] = getattr(import_module(f"trainyard.api.{module}"), kind)
    return model


_TABLE = (
    Kind("PyTorchTrainingJob", "pytorchtrainingjobs", ("pj",), "pytorch", elastic=True),
    Kind("DeepSpeedJob", "deepspeedjobs", ("dj",), "deepspeed", elastic=True),
    Kind("ColossalAIJob", "colossalaijobs", ("caij",), "colossalai"),
    Kind("GenericJob", "genericjobs", ("gj",), "generic"),
    Kind("PodGroup", "podgroups", ("pg",), "scheduling", group=SCHEDULER, is_job=False),
    Kind("Queue", "queues", ("q",), "scheduling", group=SCHEDULER, is_job=False, namespaced=False),
    Kind("TensorBoard", "tensorboards", ("tb",), "tensorboard", group=TENSORSTACK, is_job=False),
)

KINDS: Mapping[str, Kind] = MappingProxyType({kind.kind: kind for kind in _TABLE})
"""Every served kind by name."""

JOB_KINDS: Mapping[str, Kind] = MappingProxyType({k.kind: k for k in _TABLE if k.is_job})
"""The four job kinds by name."""
