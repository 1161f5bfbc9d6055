"""The objects that run a script: its job, a ConfigMap that brings its text, and a Secret for
variables whose values nobody else may see.

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
from trainyard.schema.rules.config_rules import MOST_BYTES

CONFIG_MAP_PATH = "/trainyard/script"
"""Where a ConfigMap with a script is mounted."""


def objects(
    script: Script, *, content: str | None = None, folder: str = ""
) -> list[dict[str, Any]]:
    """The ConfigMap and the Secret, if any, and the job that runs the script; raises ScriptError.

    ``content`` is the script's text for the ConfigMap, None for none. ``folder`` is where the job
    runs, "" for the manifest's own folder.
    """
    kind = kinds_by_launcher()[script.launcher]
    found = []
    if content is not None:
        script, config = _with_config_map(script, content)
        found.append(config)
    if script.secret_env:
        found.append(_secret(script))
    metadata: dict[str, Any] = {"name": script.name}
    if folder:
        metadata["annotations"] = {labels.WORKING_DIR: folder}
    job = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    found.append({**job, "spec": kind.spec_of_script(script)})
    _require_text(found)
    return found


def _require_text(objects: list[dict[str, Any]]) -> None:
    """Raise ScriptError for words that are not UTF-8, which a manifest cannot hold."""
    try:
        json.dumps(objects, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        word = error.object[: error.start].rpartition('"')[2]
        word += error.object[error.start :].partition('"')[0]
        raise ScriptError(
            f"{word!r} is not UTF-8 text, which is all that a manifest holds"
        ) from None


def text(
    script: Script, *, content: str | None = None, folder: str = "", heading: Sequence[str] = ()
) -> str:
    """The same as a manifest, with ``heading`` as lines of a comment."""
    from trainyard.api.scripts import script_manifest_text

    return script_manifest_text.text(objects(script, content=content, folder=folder), heading)


def _secret(script: Script) -> dict[str, Any]:
    """The Secret, which gets its values from the shell that submits it (decision 372)."""
    annotations = {
        labels.SCRIPT_OF: script.name,
        labels.VALUES_FROM_SHELL: ",".join(script.secret_env),
    }
    metadata = {"name": script.secret, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}


def _with_config_map(script: Script, content: str) -> tuple[Script, dict[str, Any]]:
    """The script at its path in a ConfigMap, and that ConfigMap."""
    from trainyard.api.scripts.script_manifest_text import Text

    size = len(content.encode())
    if size > MOST_BYTES:
        raise ScriptError(
            f"{script.target} has {size >> 10} KiB; a ConfigMap carries {MOST_BYTES >> 10} at "
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
    mount = Mount({"configMap": {"name": name}}, CONFIG_MAP_PATH)
    target = f"{CONFIG_MAP_PATH}/{file}"
    return replace(script, target=target, mounts=(*script.mounts, mount)), config
