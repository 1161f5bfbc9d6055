"""What every job has, whatever its kind."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from trainyard.kinds.shared.status import JobStatus
from trainyard.schema.meta import ObjectMeta
from trainyard.schema.model import Model

GROUP = "batch.tensorstack.dev"
VERSION = "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"


class Job(Model):
    """Fields common to the four kinds; each kind narrows ``spec``."""

    KIND: ClassVar[str]

    api_version: str = Field(default=API_VERSION, description=f"Always `{API_VERSION}`.")
    kind: str = Field(description="The kind of the job.")
    metadata: ObjectMeta = Field(
        default_factory=ObjectMeta, description="Standard object metadata."
    )
    spec: Model = Field(description="What to run.")
    status: JobStatus = Field(
        default_factory=JobStatus,
        description="What the controller observed last; written by it alone.",
    )
