"""Runs a function that was brought here by its source, once in every process of a job.

Beside this file are ``call.json``, what the function is made of, and ``values.pickle``, the values
that it uses; ``trainyard.api.function_capture`` makes both. What it returns on rank 0, or raises
anywhere, goes back by files beside this one, or through the log where the caller cannot read these.
A log also holds whatever the function prints, so each line that brings something back is sealed
with the key of this run, which is beside this file; the caller unpickles nothing else.

This file is the program's ``__main__``, in whose names the function finds its own, as it did where
it was written: what starts Python anew, such as a DataLoader that spawns, finds them too.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import hashlib
import hmac
import importlib
import importlib.abc
import importlib.util
import io
import json
import linecache
import os
import pickle
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

RESULT, FAILURE = "result", "failure"
"""What a file that is sent back is called, a failure with its rank behind."""
MARK = "\x1etrainyard:"
"""Begins a part of something sent back in a log; its seal and its text follow."""
KEY_FILE = "key"
"""Beside this file where results go through the log: with what their lines are sealed."""
_FUTURE_ANNOTATIONS = 0x1000000  # CO_FUTURE_ANNOTATIONS, since 3.8
_PIECE = (
    3000  # letters of a line: less than PIPE_BUF, so that lines of several processes stay whole
)
_HERE = os.path.dirname(os.path.abspath(__file__))


class _ShippedModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of the caller's own whose source came along."""

    def __init__(self, sources: Mapping[str, Any]) -> None:
        self._sources = sources

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self._sources:
            return None
        is_package = self._sources[name]["is_package"]
        return importlib.util.spec_from_loader(name, self, is_package=is_package)

    def exec_module(self, module: Any) -> None:
        source = self._sources[module.__name__]
        _register_source(source["file"], source["text"], 1)
        exec(compile(source["text"], source["file"], "exec", dont_inherit=True), module.__dict__)


class _Unpickler(pickle.Unpickler):
    """Finds the definitions that came by their source, and modules."""

    def __init__(self, data: bytes, call: FunctionCall) -> None:
        super().__init__(io.BytesIO(data))
        self._call = call

    def persistent_load(self, pid: Any) -> Any:
        kind, key = pid
        return importlib.import_module(key) if kind == "module" else self._call.definition(key)


class FunctionCall:
    """A function with all that it needs."""

    def __init__(self, folder: str, names: dict[str, Any]) -> None:
        """``names`` are the globals in which it is to live."""
        with open(os.path.join(folder, "call.json"), encoding="utf-8") as file:
            self.description: Mapping[str, Any] = json.load(file)
        with open(os.path.join(folder, "values.pickle"), "rb") as file:
            self._values = file.read()
        self._names = names
        self._made: dict[int, Any] = {}
        self._fills: dict[int, Callable[[Mapping[str, Any]], None]] = {}

    def prepare(self) -> Any:
        """Make all that the function needs; returns it with its arguments."""
        sys.path += [each for each in self.description["path"] if each not in sys.path]
        if self.description["modules"]:
            sys.meta_path.append(_ShippedModules(self.description["modules"]))
        for name, module in self.description["imports"].items():
            self._names[name] = importlib.import_module(module)
        call = None
        for kind, *what in self.description["steps"]:
            if kind == "define":
                self.definition(*what)
                continue
            start, end = what
            values = _Unpickler(self._values[start:end], self).load()
            self._names.update(values.get("globals", {}))
            for number, cells in values.get("cells", {}).items():
                self._fills[number](cells)
            for number, defaults in values.get("defaults", {}).items():
                _set_defaults(self._made[number], defaults)
            call = values.get("call", call)
        return call

    def definition(self, number: int) -> Any:
        """A function or class, made when it is first needed."""
        if number not in self._made:
            description = self.description["definitions"][number]
            names = self._names
            if description["module"] != "__main__":
                names = importlib.import_module(description["module"]).__dict__
            made, fill = _build(description, names)
            self._made[number], self._fills[number] = made, fill
            for name in description["names"]:
                self._names[name] = made
        return self._made[number]


def _build(description: Mapping[str, Any], names: dict[str, Any]) -> tuple[Any, Any]:
    """Run one definition; what it made, and what fills in its free variables."""
    _register_source(description["file"], description["text"], description["line"])
    is_indented = description["text"][:1] in (" ", "\t")
    text = "if 1:\n" + description["text"] if is_indented else description["text"]
    node: Any = ast.parse(text, description["file"]).body[0]
    node = node.body[0] if is_indented else node
    if description["is_bare"]:
        node.decorator_list = []
    flags = description["flags"]
    if description["is_function"]:
        flags |= _FUTURE_ANNOTATIONS  # what only annotations name did not come along
        for place in (node.args.defaults, node.args.kw_defaults):
            place[:] = [each and ast.copy_location(ast.Constant(None), each) for each in place]
    ast.increment_lineno(node, description["line"] - (2 if is_indented else 1))
    name = node.name if hasattr(node, "name") else node.targets[0].id
    tree: Any = ast.parse(_factory_source(name, description["free"]))
    tree.body[0].body[-3] = node
    made: dict[str, Any] = {}
    exec(compile(tree, description["file"], "exec", flags=flags, dont_inherit=True), names, made)
    found, fill = made["make"]()
    with contextlib.suppress(AttributeError, TypeError):
        found.__qualname__ = description["qualname"]
    return found, fill


def _factory_source(name: str, free: Sequence[str]) -> str:
    """A function in which a definition is made amid its free variables."""
    lines = ["def make():", *(f"    {each} = None" for each in free), "    pass"]
    lines.append("    def fill(values):")
    lines += ["        nonlocal " + ", ".join(free)] if free else []
    lines += [f"        {each} = values.get({each!r})" for each in free]
    lines += ["        pass", f"    return {name}, fill"]
    return "\n".join(lines)


def _set_defaults(function: Any, defaults: Sequence[Any]) -> None:
    """Of the function itself, below what decorators made of it."""
    if any(defaults):
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        function.__defaults__, function.__kwdefaults__ = defaults


def _register_source(file: str, text: str, line: int) -> None:
    """Let tracebacks show the lines of a source, which need not be here."""
    known: Any = linecache.cache.get(file)
    lines: list[str] = list(known[2]) if known else []
    new = text.splitlines(keepends=True)
    lines += ["\n"] * (line - 1 + len(new) - len(lines))
    lines[line - 1 : line - 1 + len(new)] = new
    linecache.cache[file] = (sum(map(len, lines)), None, lines, file)


class _FileChannel:
    """Sends back what the caller finds in the folder of this file."""

    def send(self, name: str, data: bytes) -> None:
        draft = os.path.join(_HERE, f".{name}.{os.getpid()}")
        with open(draft, "wb") as file:
            file.write(data)
        os.replace(draft, os.path.join(_HERE, name))

    def forget(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(_HERE, name))


def seal(key: bytes, text: str) -> str:
    """The hexadecimal HMAC-SHA256 of a line's text, which only holders of the key can make."""
    return hmac.new(key, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


class _LogChannel:
    """Sends back through the log, for a caller who reads nothing else."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def send(self, name: str, data: bytes) -> None:
        text = base64.b64encode(zlib.compress(data)).decode()
        pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
        message = os.urandom(8).hex()  # so that parts of two messages of one name never mix
        sys.stdout.flush()
        for number, piece in enumerate(pieces, 1):
            part = f"{name} {message} {number}/{len(pieces)} {piece}"
            os.write(1, f"{MARK}{seal(self._key, part)} {part}\n".encode())

    def forget(self, name: str) -> None:
        pass


def _failure(rank: int, error: BaseException, description: Mapping[str, Any]) -> dict[str, Any]:
    """What the caller is told of an exception."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    error = error.with_traceback(trace)
    text = "".join(traceback.format_exception(type(error), error, trace))
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if here != description["python"]:
        text += f"The replica runs Python {here}, its caller Python {description['python']}.\n"
    try:
        pickled = pickle.dumps(error, 4)
        pickle.loads(pickled)
    except Exception:
        pickled = b""
    return {
        "time": time.time(),
        "rank": rank,
        "type": type(error).__name__,
        "message": str(error),
        "text": text,
        "exception": pickled,
    }


def _result(value: object, name: str) -> bytes:
    try:
        return pickle.dumps(value, 4)
    except Exception as error:
        raise TypeError(f"{name}() returned what cannot be pickled: {error}") from error


def _read_key() -> bytes:
    with open(os.path.join(_HERE, KEY_FILE), "rb") as file:
        return file.read()


def main() -> int:
    """Call the function; the exit code of this process."""
    rank = int(os.environ.get("RANK") or 0)
    os.environ.setdefault("LOCAL_RANK", "0")  # without a launcher there is one process in a pod
    call = FunctionCall(_HERE, globals())
    back = _FileChannel() if call.description["back"] == "files" else _LogChannel(_read_key())
    back.forget(f"{FAILURE}-{rank}")
    try:
        function, arguments, keywords = call.prepare()
        value = function(*arguments, **keywords)
        if rank == 0:
            back.send(RESULT, _result(value, call.description["name"]))
    except Exception as error:
        failure = _failure(rank, error, call.description)
        back.send(f"{FAILURE}-{rank}", pickle.dumps(failure, 4))
        sys.stderr.write(failure["text"])
        sys.stderr.flush()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
elif __name__ == "__mp_main__":  # a process that multiprocessing started anew
    FunctionCall(_HERE, globals()).prepare()
