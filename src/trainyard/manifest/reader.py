"""Reads manifests: text in, documents and problems with file, line and column out.

Accepted are several YAML (or JSON) documents, ``List`` and ``<Kind>List`` objects, all served
kinds and the core kinds that jobs need beside them.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any, BinaryIO

from trainyard.kinds.kind_admission import AdmissionResult, check
from trainyard.kinds.kind_registry import JOB_KINDS, KINDS
from trainyard.kinds.shared.job import Job
from trainyard.manifest import foreign_kinds
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import InvalidManifest, TrainyardError
from trainyard.schema.kubernetes_schemas import CORE_KINDS
from trainyard.schema.model import Model
from trainyard.schema.parsed_yaml import Mistake, Parsed
from trainyard.schema.problems import Path, Problem, Severity, WithProblems, error
from trainyard.schema.server_version import Version
from trainyard.schema.structural_schema import describe

STANDARD_INPUT = "-"
_MAX_BYTES = 12 << 20
"""The reader's limit of characters, four bytes each (`yaml_parser.MAX_CHARACTERS`)."""
_NOT_UTF_8 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
"""Byte order marks. That of little-endian UTF-32 begins with UTF-16's."""


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a manifest.

    ``raw`` is the object in today's spelling, ``model`` its model (None for core kinds and when
    there are errors), ``line`` the line of the text in which it begins, 0 for none.
    """

    raw: dict[str, Any]
    kind: str
    model: Model | None
    problems: tuple[Problem, ...]
    file: str
    line: int

    @property
    def job(self) -> Job | None:
        """The model when the object is a job."""
        return self.model if isinstance(self.model, Job) else None

    @property
    def is_job(self) -> bool:
        """Whether the object is of a job kind, valid or not."""
        return self.kind in JOB_KINDS


@dataclass(frozen=True, slots=True)
class ReadResult(WithProblems):
    """Everything in a manifest; ``problems`` includes those of the documents, in file order."""

    documents: tuple[Document, ...]
    problems: tuple[Problem, ...]

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The valid jobs."""
        return tuple(d.job for d in self.documents if d.job is not None)

    def require_jobs(self) -> ReadResult:
        """This result, or InvalidManifest when it has errors or no job."""
        if self.errors:
            raise InvalidManifest(self.errors)
        if not self.jobs:
            file = self.documents[0].file if self.documents else ""
            kinds = ", ".join(JOB_KINDS)
            message = f"there is no job in the file; a job is one of {kinds}"
            raise InvalidManifest([replace(error((), message), file=file)])
        return self


def read_file(name: str, server: Version | None = None) -> ReadResult:
    """Reads a file, or standard input for ``-``; raises TrainyardError when it cannot be read.

    See ``read`` for ``server``.
    """
    try:
        return read(read_text(name), shown_name(name), server)
    except InvalidManifest as problem:
        return ReadResult((), problem.problems)


def read_text(name: str) -> str:
    """The text of a file, or of standard input for ``-``, line ends as they are.

    Raises TrainyardError when it cannot be read, InvalidManifest when it is not UTF-8 or too long
    (of a file without end, such as a device, no more is read than that takes).
    """
    try:
        with _opened(name) as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as problem:
        reason = (problem.strerror or "unreadable").lower()
        raise TrainyardError(f"cannot read {name}: {reason}") from problem
    if len(data) > _MAX_BYTES:
        message = f"is longer than {_MAX_BYTES >> 20} MiB; a manifest holds jobs, not their data"
        raise InvalidManifest([replace(error((), message), file=shown_name(name))])
    if data.startswith(_NOT_UTF_8):
        message = "is UTF-16 or UTF-32 text; save it as UTF-8"
        raise InvalidManifest([replace(error((), message), file=shown_name(name), line=1)])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        before = data[: problem.start]
        found = replace(
            error((), "is not UTF-8 text"),
            file=shown_name(name),
            line=before.count(b"\n") + 1,
            column=problem.start - (before.rfind(b"\n") + 1) + 1,
        )
        raise InvalidManifest([found]) from problem


def _opened(name: str) -> AbstractContextManager[BinaryIO]:
    if name == STANDARD_INPUT:
        return nullcontext(sys.stdin.buffer)
    return FilePath(name).open("rb")


def shown_name(name: str) -> str:
    """The name of a file in messages."""
    return "<stdin>" if name == STANDARD_INPUT else name


def read(text: str, file: str = "", server: Version | None = None) -> ReadResult:
    """Every object and every problem of a manifest; never raises for what is in the text.

    With ``server``, a version of Kubernetes, the problems that a cluster of it would have with what
    is good here are among them.
    """
    from trainyard.schema import yaml_parser

    documents: list[Document] = []
    problems: list[Problem] = []
    jobs: dict[str, int] = {}
    if foreign_kinds.is_sbatch_script(text):
        problems.append(
            replace(
                error((), foreign_kinds.advise_convert(foreign_kinds.SBATCH_SCRIPT, file)),
                file=file,
                line=1,
            )
        )
        return ReadResult((), tuple(problems))
    for parsed in yaml_parser.parse(text):
        found = [as_problem(mistake, file) for mistake in parsed.mistakes]
        for raw, prefix in _objects(parsed, found, file):
            document = _document(raw, prefix, parsed, file, jobs, server)
            documents.append(document)
            found += document.problems
        problems += sorted(found, key=lambda p: (p.line, p.column))
    if not documents and not problems:
        message = "holds no object" if text.strip() else "is empty"
        problems.append(replace(error((), message), file=file))
    return ReadResult(tuple(documents), tuple(problems))


def read_objects(objects: Iterable[dict[str, Any]]) -> ReadResult:
    """The same for objects that were not read from a text."""
    jobs: dict[str, int] = {}
    documents = tuple(_document(raw, (), Parsed(raw, (), None), "", jobs) for raw in objects)
    return ReadResult(documents, tuple(p for each in documents for p in each.problems))


def as_problem(mistake: Mistake, file: str) -> Problem:
    """A mistake in the YAML itself as an error of the file."""
    found = error((), mistake.message)
    return replace(found, file=file, line=mistake.line, column=mistake.column)


def _objects(
    parsed: Parsed, problems: list[Problem], file: str
) -> Iterator[tuple[dict[str, Any], Path]]:
    """The objects of a document, or of the lists in it, with their paths."""
    data = parsed.data
    if data is None:
        return
    kind = data.get("kind") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not _is_list(kind):
        if isinstance(data, dict):
            yield data, ()
        else:
            message = f"an object must be a mapping, not {describe(data)}"
            problems.append(_placed(error((), message), (), parsed, file, ""))
        return
    items = data.get("items")
    if not isinstance(items, list):
        what = "is required" if items is None else f"must be a list, not {describe(items)}"
        problems.append(_placed(error(("items",), what), (), parsed, file, str(kind)))
        return
    problems.extend(
        _placed(error((key,), "unknown field"), (), parsed, file, str(kind))
        for key in data.keys() - {"apiVersion", "kind", "metadata", "items"}
    )
    for index, item in enumerate(items):
        if isinstance(item, dict):
            yield _inherit(item, str(kind), data), ("items", index)
        else:
            found = error(("items", index), f"must be a mapping, not {describe(item)}")
            problems.append(_placed(found, (), parsed, file, str(kind)))


def _is_list(kind: Any) -> bool:
    if not isinstance(kind, str) or not kind.endswith("List"):
        return False
    return kind == "List" or kind[:-4] in KINDS or kind[:-4] in CORE_KINDS


def _inherit(item: dict[str, Any], list_kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """An item of ``<Kind>List`` may leave its kind and version to the list."""
    if list_kind == "List":
        return item
    given = {"kind": list_kind[:-4]}
    if isinstance(version := data.get("apiVersion"), str):
        given["apiVersion"] = version
    return {**given, **item}


def _document(
    raw: dict[str, Any],
    prefix: Path,
    parsed: Parsed,
    file: str,
    jobs: dict[str, int],
    server: Version | None = None,
) -> Document:
    """``jobs``: the lines of earlier jobs by name, to which this one is added."""
    checked: AdmissionResult = check(raw)
    name, kind = object_name(raw), raw.get("kind")
    kind = kind if isinstance(kind, str) else ""
    line, _ = parsed.locate(prefix)
    found, model = checked.problems, checked.model
    if title := foreign_kinds.title_of(raw):
        found, model = (error((), foreign_kinds.advise_convert(title, file)),), None
    if kind in JOB_KINDS and _is_named(raw):
        if name in jobs:
            message = f"is the name of the job at line {jobs[name]} too"
            found, model = (*found, error(("metadata", "name"), message)), None
        jobs.setdefault(name, line)
    if server is not None and not any(p.severity is Severity.ERROR for p in found):
        from trainyard.kinds.server_compatibility import check_for_server

        found = (*found, *check_for_server(raw, server))
    problems = tuple(_placed(p, prefix, parsed, file, name) for p in found)
    return Document(checked.obj, kind, model, problems, file, line)


def _is_named(raw: dict[str, Any]) -> bool:
    metadata = raw.get("metadata")
    return isinstance(metadata, dict) and isinstance(metadata.get("name"), str)


def _placed(problem: Problem, prefix: Path, parsed: Parsed, file: str, name: str) -> Problem:
    line, column = parsed.locate(prefix + problem.path)
    return replace(problem, file=file, line=line, column=column, object=name)


def object_name(obj: dict[str, Any]) -> str:
    """``Kind namespace/name`` of an object, however broken."""
    kind = obj.get("kind")
    metadata = obj.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name, prefix = metadata.get("name"), metadata.get("generateName")
    shown = name if isinstance(name, str) and name else ""
    if not shown and isinstance(prefix, str) and prefix:
        shown = f"{prefix}*"
    shown_kind = kind[:63] if isinstance(kind, str) else "object"
    if shown_kind in KINDS and not KINDS[shown_kind].namespaced:
        return f"{shown_kind} {shown[:253]}".rstrip()
    namespace = metadata.get("namespace")
    namespace = namespace if isinstance(namespace, str) and namespace else "default"
    return f"{shown_kind} {namespace[:63]}/{shown[:253]}" if shown else shown_kind
