"""Where a pod's files are that nobody needs once the runtime is gone: mostly in memory."""

from __future__ import annotations

from typing import NamedTuple, Self


class RuntimeFolder(NamedTuple):
    """A folder that the runtime has mounted, mostly a tmpfs that only it and its pods see."""

    path: str
    """Its path for this process, which reaches it by a descriptor."""
    runtime_path: str
    """For the runtime, as the source of a mount; without namespaces for everybody."""

    def child(self, *names: str) -> Self:
        path = "/".join(names)
        return type(self)(f"{self.path}/{path}", f"{self.runtime_path}/{path}")
