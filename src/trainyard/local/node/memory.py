"""Where a pod's files are that nobody needs once the runtime is gone: mostly in memory."""

from __future__ import annotations

import os
from typing import NamedTuple, Self


class Memory(NamedTuple):
    """A folder that the runtime has mounted, mostly a tmpfs that only it and its pods see."""

    here: str
    """Its path for this process, which reaches it by a descriptor."""
    there: str
    """For the runtime, as the source of a mount; without namespaces for everybody."""

    def beneath(self, *names: str) -> Self:
        return self._replace(
            here=os.path.join(self.here, *names), there=os.path.join(self.there, *names)
        )
