"""The API resources that a job's objects are instances of, named as in a URL."""

from __future__ import annotations

from typing import NamedTuple


class Resource(NamedTuple):
    """Group, version and plural, which together select one collection of the Kubernetes API."""

    group: str
    version: str
    plural: str

    @property
    def api_version(self) -> str:
        """As written in an object's ``apiVersion``."""
        return f"{self.group}/{self.version}" if self.group else self.version


PODS = Resource("", "v1", "pods")
SERVICES = Resource("", "v1", "services")
SECRETS = Resource("", "v1", "secrets")
CONFIG_MAPS = Resource("", "v1", "configmaps")
POD_GROUPS = Resource("scheduler.tensorstack.dev", "v1beta1", "podgroups")
TENSOR_BOARDS = Resource("tensorstack.dev", "v1beta1", "tensorboards")
