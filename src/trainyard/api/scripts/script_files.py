"""Where a script is that the user named, and what kind of program it is."""

from __future__ import annotations

import os
import re
import shlex
from difflib import get_close_matches
from pathlib import Path
from typing import Literal
from zipfile import is_zipfile

from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import TrainyardError

_SHELLS = (".sh", ".bash", ".zsh")
_PYTHON = re.compile(r"(.*/)?python[\d.]*\Z")
_LAUNCHING = re.compile(r"(.*/)?(torchrun|deepspeed|colossalai|accelerate|torchx|mpirun|srun)\Z")


class ScriptMistake(TrainyardError):
    """What the user named is no script that can be run; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Found:
    """A script where it lies. `file` is empty for what is not on this machine."""

    target: str
    form: Literal["python", "module", "program"]
    file: str = ""
    interpreter: str = "python"

    @property
    def is_archive(self) -> bool:
        """A zipped application (https://docs.python.org/3/library/zipapp.html)."""
        return self.form == "python" and bool(self.file) and is_zipfile(self.file)

    @property
    def folder(self) -> str:
        """Where Python looks first for what the script imports."""
        if self.form == "module":
            return os.getcwd()
        # A link to a script is followed, one to an archive is not:
        # https://docs.python.org/3/library/sys_path_init.html
        is_followed = self.form == "python" and not self.is_archive
        path = os.path.realpath(self.file) if is_followed else os.path.abspath(self.file)
        return os.path.dirname(path)


def find(target: str, *, is_module: bool, on_cluster: bool = False) -> Found:
    """The script of this name; raises ScriptMistake. On a cluster it may be the image's own."""
    if is_module:
        return _module(target)
    if not target:
        raise ScriptMistake("the name of the script is empty")
    path = Path(target).expanduser()
    if path.is_file():
        return _file(str(path))
    if path.exists() and not path.is_dir():
        raise ScriptMistake(
            f"{target} is no file that could be read more than once: write the script into one"
        )
    if on_cluster and path.is_absolute():
        return Found(target, "python" if target.endswith(".py") else "program", interpreter="")
    if path.is_dir():
        inside = [path / each for each in _candidates(path)]
        hint = f": name the script in it, such as {inside[0]}" if inside else ": name a script"
        if (path / "__main__.py").exists():
            hint = f": run it with -m {target.rstrip('/').replace('/', '.')}"
        raise ScriptMistake(f"{target} is a folder{hint}")
    if _PYTHON.match(target):
        raise ScriptMistake(f"leave {target} out: name the script itself, trainyard run train.py")
    if match := _LAUNCHING.match(target):
        raise ScriptMistake(
            f"leave {match[2]} out: name the script itself; trainyard launches it (--launcher)"
        )
    folder = path.parent
    names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    close = get_close_matches(path.name, names, 1)
    hint = f"; did you mean {folder / close[0]}?" if close else ""
    raise ScriptMistake(f"cannot read {target}: no such file{hint}")


def propose() -> str:
    """The script that is likely meant in this folder; raises ScriptMistake."""
    found = _candidates(Path())
    if len(found) == 1 or (found and found[0] in ("train.py", "main.py")):
        return found[0]
    if found:
        raise ScriptMistake(f"there are several scripts here: name one of {', '.join(found[:8])}")
    raise ScriptMistake("there is no Python script here: name one, trainyard init SCRIPT")


def _candidates(folder: Path) -> list[str]:
    names = sorted(path.name for path in folder.glob("*.py") if not path.name.startswith("_"))
    return sorted(names, key=lambda name: (name != "train.py", name != "main.py", name))


def _module(target: str) -> Found:
    if target.endswith(".py") or "/" in target:
        meant = target.removesuffix(".py").strip("./").replace("/", ".")
        raise ScriptMistake(
            f"-m takes the name of a module, not a path: -m {meant}, or leave -m out"
        )
    if not all(part.isidentifier() for part in target.split(".")):
        raise ScriptMistake(f"{target!r} is not the name of a module")
    base = target.replace(".", "/")
    files = (f"{base}.py", f"{base}/__main__.py")
    file = next((file for file in files if os.path.isfile(file)), "")
    if not file and os.path.isfile(f"{base}/__init__.py"):
        raise ScriptMistake(
            f"{target} is a package without a __main__.py: name a module in it, -m {target}.train"
        )
    return Found(target, "module", file)


def _file(target: str) -> Found:
    suffix = Path(target).suffix.lower()
    if suffix == ".ipynb":
        raise ScriptMistake(
            f"{target} is a notebook, which cannot run by itself: make a script of it with "
            f"`jupyter nbconvert --to script {shlex.quote(target)}`"
        )
    try:
        with open(target, "rb") as file:
            first = file.readline(4096)
    except OSError as error:
        raise ScriptMistake(f"cannot read {target}: {(error.strerror or '').lower()}") from error
    if suffix in (".py", ".pyw", ".pyz") or re.match(rb"#!.*\bpython", first):
        return Found(target, "python", target)
    if first.startswith(b"#!") and first.endswith(b"\r\n"):
        raise ScriptMistake(
            f"{target} has the line ends of Windows, with which Linux does not find what its first "
            f"line names: mend them with `sed -i 's/\\r$//' {shlex.quote(target)}`"
        )
    is_runnable = os.access(target, os.X_OK) and first[:2] in (b"#!", b"\x7fE")
    if is_runnable:
        shown = target if "/" in target else f"./{target}"
        return Found(shown, "program", target, interpreter="")
    if suffix in _SHELLS or first.startswith(b"#!"):
        return Found(target, "program", target, interpreter="bash" if suffix == ".bash" else "sh")
    raise ScriptMistake(
        f"{target} is neither a Python script (.py), nor a shell script (.sh), nor executable"
    )
