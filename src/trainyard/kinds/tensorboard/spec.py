"""TensorBoard (``tensorstack.dev/v1beta1``): a viewer of training logs."""

import posixpath

from pydantic import Field

from trainyard.kinds.shared.run_policy import QueueOnly
from trainyard.schema.meta import ObjectMeta
from trainyard.schema.model import Items, Model, Observed, Template


class PvcLogs(Model):
    """Logs in a claim."""

    name: str = Field(description="Name of the PersistentVolumeClaim.", examples=["mnist"])
    sub_path: Items[str] = Field(
        default=(), description="Folders in the claim; none means all of it.", examples=[["./log"]]
    )


class SecretReference(Model):
    """A Secret of the same namespace."""

    name: str = Field(description="Name of the Secret.", examples=["s3-env"])


class S3Logs(Model):
    """Logs in an object store."""

    secret_ref: SecretReference = Field(
        description="Secret with the address and credentials of the store.",
        examples=[{"name": "s3-env"}],
    )
    uri: Items[str] = Field(
        default=(),
        description="Prefixes of the logs; each should end in '/'.",
        examples=[["s3://runs/mnist/"]],
    )


class HttpLogs(Model):
    """Logs behind a web server."""

    url: Items[str] = Field(
        default=(), description="Addresses of log files.", examples=[["https://example.com/events"]]
    )


class LogDir(Model):
    """Where the logs are; the sources may be combined."""

    pvc: Items[PvcLogs] = Field(
        default=(), description="Claims.", examples=[[{"name": "mnist", "subPath": ["log"]}]]
    )
    s3: S3Logs | None = Field(default=None, description="An object store.")
    http: HttpLogs | None = Field(default=None, description="Web servers.")


def inside_claim(path: str) -> str | None:
    """A folder relative to its claim's root (`./log` is `log`); None when it leaves the claim."""
    normal = posixpath.normpath(path.lstrip("/") or ".")
    if normal == ".." or normal.startswith("../"):
        return None
    return "" if normal == "." else normal


class TensorBoardScheduler(Model):
    """The scheduler of the TensorBoard's pod."""

    t9k_scheduler: QueueOnly | None = Field(
        default=None,
        alias="t9kScheduler",
        description="Use the T9k scheduler.",
        examples=[{"queue": "default"}],
    )


class TensorBoardSpec(Model):
    """What to show, and how to run the viewer."""

    training_log_filesets: Items[str] = Field(
        default=(),
        description="Addresses `t9k://pvc/<claim>/<path>` or "
        "`t9k://minio/<secret>/<bucket>/<path>`. Deprecated: use `logDir`.",
        examples=[["t9k://pvc/mnist/log"]],
    )
    log_dir: LogDir | None = Field(
        default=None,
        description="Where the logs are.",
        examples=[{"pvc": [{"name": "mnist", "subPath": ["log"]}]}],
    )
    image: str | None = Field(
        default=None,
        description="Image with `tensorboard`. Defaults to the operator's setting.",
        examples=["tensorflow/tensorflow:2.14.0"],
    )
    suspend: bool = Field(
        default=False, description="Delete the pod, keep the Service. Defaults to false."
    )
    run_mode: str | None = Field(default=None, description="Deprecated: use `suspend`.")
    scheduler: TensorBoardScheduler | None = Field(
        default=None, description="Scheduler of the pod."
    )
    resources: Template | None = Field(
        default=None,
        description="Resources of the container.",
        examples=[{"limits": {"cpu": "1", "memory": "1Gi"}}],
    )


class TensorBoard(Model):
    """A viewer of training logs."""

    api_version: str = Field(default="tensorstack.dev/v1beta1", description="API version.")
    kind: str = Field(default="TensorBoard", description="Always `TensorBoard`.")
    metadata: ObjectMeta = Field(
        default_factory=ObjectMeta.empty, description="Standard object metadata."
    )
    spec: TensorBoardSpec = Field(
        default_factory=TensorBoardSpec.empty, description="What is wanted."
    )
    status: Observed = Field(default=None, description="What was observed last.")
