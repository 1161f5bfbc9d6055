"""With which text a program goes into a pod; `FILES` of its folder says under which file name.

In this package the programs are ordinary modules. In a pod there is no package: the programs of
one purpose lie side by side in a folder, or together in one archive, and import each other by their
file names there. So `programs` and `observer_archive` rewrite the imports of what they ship.

The file names in pods are part of the pods' manifests, of commands, and of what older versions of
the controller know. They never change, whatever the modules are called. This module itself runs in
the controller only.
"""

from __future__ import annotations

import ast
import base64
import functools
import io
import re
from collections.abc import Mapping
from pathlib import Path

TORCHRUN = "torchrun.py"
"""Name of a file beside those of `launch`, which runs in the place of torchrun."""
HOOK, OBSERVER_ARCHIVE = "sitecustomize.py", "trainyard_observer.zip"
"""The observer in a folder of PYTHONPATH: what every Python in the pod loads, and what that loads
in a rank."""
_OBSERVER_PACKAGE = "trainyard_observer"
OBSERVER = (
    "observer.stack_server",
    "observer.collective_timing",
    "observer.collective_cadence",
    "observer.flight_recorders",
    "observer.tensorboard_events",
    "observer.rank_observer",
    "observer.process_sampling",
    "observer.rank_state",
    "observer.ranks_met",
    "observer.printed_progress",
    "in_place.in_place_standby",
    "report_client",
)
_INLINED = ("rank_output", "crash_stack")
"""Modules that have no file in a pod: a job's ConfigMap may be older than they are."""
_IMPORT = re.compile(r"^( *)from trainyard\.payloads(?:\.([\w.]+))? import (.*)$", re.MULTILINE)
_OWN_FOLDER = '__import__("sys").path.insert(0, __file__.rpartition("/")[0])\n'
"""Programs run in isolated mode (`python -I`), which leaves their folder out of the path."""
_PACKAGE_PATH = re.compile(
    r"^( *)from trainyard\.payloads(?:\.(?:observer|in_place)\b)?", re.MULTILINE
)


@functools.lru_cache(maxsize=64)
def source(module: str) -> str:
    """The text of a module of this package, such as `observer.stack_collector`."""
    path = Path(__file__).parent / (module.replace(".", "/") + ".py")
    return path.read_text(encoding="utf-8")


def programs(files: Mapping[str, str]) -> dict[str, str]:
    """File names in the pod and their texts.

    `files` has file names in the pod, and the modules of this package, with all that they import of
    it: the `FILES` of a folder here, or of several.
    """
    return dict(_programs(tuple(files.items())))


@functools.lru_cache(maxsize=2)
def torchrun_program(*, elastic: bool) -> str:
    """Python that runs in the place of torchrun, for `python -c` or a file of its own.

    It is in the command of every pod of a PyTorchTrainingJob, so it has no docstrings or comments.
    """
    parts = ["torchrun.torchrun_program", "rank_output", "crash_stack", "torchrun.torchrun_ranks"]
    patches = "*RANK_PATCHES"
    if elastic:
        parts.append("torchrun.torchrun_elastic")
        patches += ", *ELASTIC_PATCHES"
    first, *others = parts
    text = _without_comments(source(first)) + "".join(map(_inlined, others))
    return f"{text}main({patches})\n"


def observer_hook() -> str:
    """The text of `HOOK`."""
    return source("observer.sitecustomize_hook")


@functools.lru_cache(maxsize=1)
def observer_archive() -> str:
    """`OBSERVER_ARCHIVE` in base64.

    One file and two fifths of the bytes of separate ones: every job has a copy in its Secret, and
    every pod one on its node (decision 347).
    """
    import zipfile  # slow to import, and needed only once a job is observed

    texts = {module.rpartition(".")[2]: _for_archive(module) for module in OBSERVER}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in {"__init__": "", **texts}.items():
            # A ZipInfo is dated 1980 by default, so equal texts give equal bytes.
            entry = zipfile.ZipInfo(f"{_OBSERVER_PACKAGE}/{name}.py")
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED)
    return base64.b64encode(packed.getvalue()).decode()


def _inlined(module: str) -> str:
    """The text as a part of another one."""
    text = _without_comments(source(module))
    return re.sub(r"^from (?:__future__|trainyard).*\n", "", text, flags=re.MULTILINE)


def _without_comments(text: str) -> str:
    """Without docstrings, lines of comments, and empty lines."""
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = ""
    return "".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))


@functools.lru_cache(maxsize=16)
def _programs(files: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    names = {module: name.removesuffix(".py") for name, module in files}
    return {name: _for_folder(module, names) for name, module in files}


def _for_folder(module: str, names: Mapping[str, str]) -> str:
    """The text with its imports of other programs by their `names` in a pod."""

    def rewrite(found: re.Match[str]) -> str:
        indent, path, imports = found.groups()
        if path in _INLINED:
            return _inlined(path)
        if path in names:
            line = f"{indent}from {names[path]} import {imports}"
        else:
            imported = f"{path}.{imports}" if path else imports
            if imported not in names:  # only types: the line is below `if TYPE_CHECKING`
                return found[0]
            line = f"{indent}import {names[imported]} as {imports}"
        return line

    text, body = source(module), _IMPORT.sub(rewrite, source(module))
    first = next((m for m in _IMPORT.finditer(text) if not m[1]), None)
    return body if first is None else body[: first.start()] + _OWN_FOLDER + body[first.start() :]


def _for_archive(module: str) -> str:
    """The text with its imports of other modules of this package from the archive's package."""
    return _PACKAGE_PATH.sub(rf"\1from {_OBSERVER_PACKAGE}", source(module))
