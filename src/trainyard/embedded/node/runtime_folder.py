"""The folder, mostly a tmpfs, for files of pods that need not outlive the pod runtime."""

from __future__ import annotations

from typing import NamedTuple, Self


class RuntimeFolder(NamedTuple):
    """A folder of the pod runtime, mostly in a tmpfs that only the runtime and its pods see."""

    path: str
    """Its path for this process."""
    runtime_path: str
    """Its path for the runtime, which uses it as the source of mounts."""

    def child(self, *names: str) -> Self:
        path = "/".join(names)
        return type(self)(f"{self.path}/{path}", f"{self.runtime_path}/{path}")
