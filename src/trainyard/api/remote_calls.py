"""The way of a function to replicas, and of what it returns or raises back (decision 146).

On the embedded cluster both go by a folder of this machine. On another a Secret brings it, and the
log takes back what comes of it, in lines that are sealed with a key from that Secret: a log is also
what a function prints, and unpickling runs what somebody else wrote.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import json
import os
import pickle
import re
import secrets
import shutil
import site
import string
import sys
import sysconfig
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

from trainyard.api.errors import CaptureError, JobFailed, RemoteTraceback
from trainyard.api.function_capture import Captured
from trainyard.client.cluster_target import CommandError
from trainyard.client.job_view import Job
from trainyard.payloads import shipping
from trainyard.payloads.function_call import FAILURE, KEY_FILE, MARK, RESULT, seal
from trainyard.schema.rules.config_rules import MOST_BYTES

PROGRAM = "call.py"
_LETTERS = string.ascii_lowercase + string.digits
_NAME_LENGTH = 40
_KEY_BYTES = 32


class ResultTransport(Protocol):
    """How a function gets to its replicas."""

    def found(self) -> dict[str, bytes]:
        """What was sent back: the result, and failures by rank."""

    def close(self) -> None:
        """Leave nothing behind."""


class Folder:
    """A folder of this machine, which replicas see at the same path."""

    def __init__(self, captured: Captured) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="trainyard-call-"))
        call = {**captured.call, "back": "files", "modules": {}, "path": _own_path()}
        for name, content in _contents(call, captured.values).items():
            (self.path / name).write_bytes(content)

    def found(self) -> dict[str, bytes]:
        names = [path for path in self.path.iterdir() if path.name.startswith((RESULT, FAILURE))]
        return {path.name: path.read_bytes() for path in names}

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


class SealedLines:
    """A Secret there, and lines of the log back, which are sealed with the key that it holds."""

    def __init__(self, captured: Captured) -> None:
        modules = _own_modules(captured.modules)
        call = {**captured.call, "back": "lines", "modules": modules, "path": []}
        self._key = secrets.token_bytes(_KEY_BYTES)
        self.contents = {**_contents(call, captured.values), KEY_FILE: self._key}
        size = sum(map(len, self.contents.values()))
        if size > MOST_BYTES:
            raise CaptureError(
                f"{captured.call['name']}() with all that it uses has {size >> 10} KiB, of which a "
                f"Secret carries {MOST_BYTES >> 10}: let it read what is large from a "
                "volume, or put its modules into the image"
            )
        self._parts: dict[tuple[str, str], dict[int, str]] = {}
        """Of messages that are not whole yet: by name and identity, then by number."""
        self._found: dict[str, bytes] = {}

    def take(self, lines: Sequence[str]) -> list[str]:
        """Note what is sent back; the lines that are the function's own, among them whatever looks
        like something sent back and does not have the seal of this run."""
        own = []
        for line in lines:
            before, mark, marked = line.rpartition(MARK)
            given, _, part = marked.partition(" ")
            if not mark or not self._is_sealed(given, part):
                own.append(line)
                continue
            self._add(part)
            if before:  # printed without a line's end
                own.append(before)
        return own

    def _is_sealed(self, given: str, part: str) -> bool:
        # Bytes, since texts that are compared must be ASCII.
        known = seal(self._key, part).encode()
        return hmac.compare_digest(given.encode("utf-8", "replace"), known)

    def _add(self, part: str) -> None:
        name, message, place, piece = part.split(" ")
        number, _, count = place.partition("/")
        parts = self._parts.setdefault((name, message), {})
        parts[int(number)] = piece
        if len(parts) == int(count):
            whole = "".join(each for _, each in sorted(parts.items()))
            self._found[name] = zlib.decompress(base64.b64decode(whole))
            del self._parts[name, message]

    def found(self) -> dict[str, bytes]:
        return self._found

    def close(self) -> None:
        self._parts.clear()
        self._found.clear()


def _contents(call: Mapping[str, Any], values: bytes) -> dict[str, bytes]:
    program = shipping.source("function_call").encode()
    return {PROGRAM: program, "call.json": json.dumps(call).encode(), "values.pickle": values}


def _own_path() -> list[str]:
    """Where modules are looked for here: absolute, the script's folder among them."""
    return [os.path.abspath(each) for each in sys.path if os.path.isdir(each or ".")]


def _own_modules(names: Sequence[str] | frozenset[str]) -> dict[str, dict[str, Any]]:
    """The sources of those modules that no package on the other side brings, and of all that
    these in turn have imported."""
    installed = tuple(
        {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
        | set(site.getsitepackages())
        | {site.getusersitepackages()}
    )
    found: dict[str, dict[str, Any]] = {}
    left = list(names)
    while left:
        name = left.pop()
        module, file = sys.modules.get(name), ""
        if module is not None:
            file = os.path.abspath(getattr(module, "__file__", None) or "")
        if name in found or name == "__main__" or not file.endswith(".py"):
            continue
        if file.startswith(installed) or name.partition(".")[0] == "trainyard":
            continue
        is_package = os.path.basename(file) == "__init__.py"
        text = Path(file).read_text(encoding="utf-8")
        found[name] = {"text": text, "file": file, "is_package": is_package}
        left.append(name.rpartition(".")[0])
        for value in vars(module).values():
            of = (
                value.__name__ if isinstance(value, type(sys)) else getattr(value, "__module__", "")
            )
            left += [of] if isinstance(of, str) else []
    return found


def job_name(function: Callable[..., Any]) -> str:
    """A name that no other job has."""
    name = re.sub(r"[^a-z0-9]+", "-", function.__name__.lower()).strip("-") or "function"
    name = name if name[0].isalpha() else f"f-{name}"
    suffix = "".join(secrets.choice(_LETTERS) for _ in range(5))
    return f"{name[:_NAME_LENGTH].rstrip('-')}-{suffix}"


def returned(transport: ResultTransport, job: Job) -> Any:
    """What the function returned on rank 0."""
    found = transport.found()
    if RESULT not in found:
        raise CommandError(f"{job} has succeeded, but what it returned did not arrive")
    try:
        return pickle.loads(found[RESULT])
    except Exception as error:
        raise CommandError(
            f"what {job} returned cannot be read here: {type(error).__name__}: {error}; return "
            "what is made of plain values, or install here what it is made with"
        ) from error


def raise_failure(transport: ResultTransport, job: Job) -> None:
    """Raise what the function has raised in the replica that failed first, if any has told."""
    found = transport.found().items()
    failures = [pickle.loads(data) for name, data in found if name.startswith(FAILURE)]
    if failures:
        _raise(min(failures, key=lambda failure: float(failure["time"])), job)


def _raise(failure: Mapping[str, Any], job: Job) -> NoReturn:
    """The exception as it was raised in a replica, or one that tells of it."""
    remote = RemoteTraceback(failure["text"])
    error: object = None
    with contextlib.suppress(Exception):
        error = pickle.loads(failure["exception"])
    if not isinstance(error, BaseException):
        error = JobFailed(
            f"{job}: rank {failure['rank']}: {failure['type']}: {failure['message']}", job
        )
    error.add_note(f"raised by rank {failure['rank']} of {job}")
    raise error from remote
