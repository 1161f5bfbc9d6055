"""The job of a script, and what it needs: all that there is to running it.

`trainyard run SCRIPT` reads the very objects whose text ``--save`` writes, so that both are the
same job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trainyard.kinds.kind_registry import kinds_by_launcher
from trainyard.kinds.shared import labels
from trainyard.kinds.shared.script import Mount, Script, ScriptError

CARRIED_AT = "/trainyard/script"
"""Where a script is that came along in a ConfigMap."""
_MOST_CARRIED = 1 << 20
"""Of a ConfigMap (https://kubernetes.io/docs/concepts/configuration/configmap/)."""


def objects(
    script: Script, *, carried: str | None = None, folder: str = ""
) -> list[dict[str, Any]]:
    """The job that runs the script, after what it needs; raises ScriptError.

    ``carried`` is the script's text where a ConfigMap is to bring it, ``folder`` where it runs
    unless that is the manifest's own folder.
    """
    kind = kinds_by_launcher()[script.launcher]
    found = []
    if carried is not None:
        script, config = _carrying(script, carried)
        found.append(config)
    metadata: dict[str, Any] = {"name": script.name}
    if folder:
        metadata["annotations"] = {labels.WORKING_DIR: folder}
    job = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    found.append({**job, "spec": kind.of_script(script)})
    _require_text(found)
    return found


def _require_text(objects: list[dict[str, Any]]) -> None:
    """Words of a command line need be no text; a manifest, and what is sent to a server, is."""
    try:
        json.dumps(objects, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        word = error.object[: error.start].rpartition('"')[2]
        word += error.object[error.start :].partition('"')[0]
        raise ScriptError(
            f"{word!r} is not UTF-8 text, which is all that a manifest holds"
        ) from None


def text(
    script: Script, *, carried: str | None = None, folder: str = "", heading: Sequence[str] = ()
) -> str:
    """The same as a manifest, with ``heading`` as lines of a comment."""
    from trainyard.api.scripts import script_manifest_text

    return script_manifest_text.text(objects(script, carried=carried, folder=folder), heading)


def _carrying(script: Script, content: str) -> tuple[Script, dict[str, Any]]:
    """The script as it is found in a ConfigMap, and that ConfigMap."""
    from trainyard.api.scripts.script_manifest_text import Text

    size = len(content.encode())
    if size > _MOST_CARRIED:
        raise ScriptError(
            f"{script.target} has {size >> 10} KiB; a ConfigMap carries {_MOST_CARRIED >> 10} at "
            "most: put the script into the image and name its path there"
        )
    file = re.sub(r"[^-._a-zA-Z0-9]", "_", script.target.rpartition("/")[2])
    name = f"{script.name}-script"
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "annotations": {labels.SCRIPT_OF: script.name}},
        "data": {file: Text(content)},
    }
    mount = Mount({"configMap": {"name": name}}, CARRIED_AT)
    target = f"{CARRIED_AT}/{file}"
    return replace(script, target=target, mounts=(*script.mounts, mount)), config
