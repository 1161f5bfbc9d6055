"""The observer's programs, in one folder that is mounted into all observed pods (decision 360)."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
from collections.abc import Mapping
from typing import Any

from trainyard.embedded.node.runtime_folder import RuntimeFolder
from trainyard.kube.embedded_contract import OBSERVE


def is_observed(container: Mapping[str, Any]) -> bool:
    """Whether a container asks for the observer, by its variable OBSERVE."""
    return any(each.get("name") == OBSERVE for each in container.get("env") or ())


class ObserverFolder:
    """One read-only folder for all pods, within `memory`."""

    def __init__(self, memory: RuntimeFolder) -> None:
        self._folder = memory
        self._made: RuntimeFolder | None = None

    def path(self) -> str:
        """The source of the mount; the first call writes the files.

        The name is a digest of the content, so that pods keep their version after an upgrade.
        """
        if self._made is None:
            self._made = self._make()
        return self._made.runtime_path

    def _make(self) -> RuntimeFolder:
        # Imported for the first rank: a cluster without any is ready sooner.
        from trainyard.payloads.shipping import (
            HOOK,
            OBSERVER_ARCHIVE,
            observer_archive,
            observer_hook,
        )

        archive = base64.b64decode(observer_archive())
        files = {HOOK: observer_hook().encode(), OBSERVER_ARCHIVE: archive}
        digest = hashlib.sha256(b"".join(files.values())).hexdigest()[:16]
        found = self._folder.child(digest)
        if os.path.isdir(found.path):
            return found
        draft = self._folder.child(f".{digest}").path
        shutil.rmtree(draft, ignore_errors=True)  # of an agent that did not come to the end
        os.makedirs(draft)
        for name, data in files.items():
            fd = os.open(f"{draft}/{name}", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o444)
            with os.fdopen(fd, "wb") as file:
                file.write(data)
            os.chmod(f"{draft}/{name}", 0o444)
        os.chmod(draft, 0o755)
        os.rename(draft, found.path)
        return found
