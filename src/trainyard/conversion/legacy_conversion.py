"""Old spellings to today's in the text of a manifest, keeping comments, order and quotes.

The old spellings are those of ``legacy``; here they are rewritten in ruamel's round-trip nodes
instead of plain data. What comes out means the same: the reader normalises both texts to the same
objects.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError

from trainyard.kinds.kind_registry import JOB_KINDS, KINDS
from trainyard.kinds.shared import legacy_spellings
from trainyard.manifest import foreign_kinds
from trainyard.manifest.reader import Document, as_problem, read
from trainyard.schema import yaml_parser
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import InvalidManifest
from trainyard.schema.kubernetes_schemas import CORE_KINDS
from trainyard.schema.problems import Problem, Severity, error


@dataclass(frozen=True, slots=True)
class Converted:
    """The new text, the old text's warnings that no longer apply, and warnings about objects that
    no manifest of ours has and that are left as they are."""

    text: str
    changes: tuple[Problem, ...]


def convert(text: str, file: str = "") -> Converted:
    """The manifest in today's spelling, with the line ends that it had.

    Raises InvalidManifest for a text that is no YAML, has contradictory spellings, or holds no
    object of a kind that can be converted.
    """
    broken = [
        as_problem(mistake, file)
        for parsed in yaml_parser.parse(text)
        for mistake in parsed.mistakes
    ]
    if broken:
        raise InvalidManifest(broken)
    before = read(text, file)
    contradictions = [p for p in before.errors if "contradicts" in p.message]
    if contradictions:
        raise InvalidManifest(contradictions)
    if not before.documents:
        raise InvalidManifest(before.errors)
    left_alone = [_left_alone(d) for d in before.documents if not _is_known(d)]
    if left_alone and not any(d.kind in KINDS for d in before.documents):
        raise InvalidManifest(left_alone)
    notes = tuple(replace(problem, severity=Severity.WARNING) for problem in left_alone)
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 10_000
    yaml.brace_single_entry_mapping_in_flow_sequence = True
    _keep_indentation(yaml, text)
    documents = _load(yaml, text, file)
    if not sum(_convert(obj) for document in documents for obj in _objects(document)):
        return Converted(text, notes)
    out = io.StringIO()
    yaml.dump_all(documents, out)
    result = out.getvalue()
    if "\r\n" in text:
        result = result.replace("\r\n", "\n").replace("\n", "\r\n")
    # Old spellings without a current one keep their warnings.
    left = {p.message for p in read(result, file).warnings}
    gone = (p for p in before.warnings if p.message not in left)
    return Converted(result, (*gone, *notes))


def _load(yaml: YAML, text: str, file: str) -> list[Any]:
    """The documents with their comments; raises InvalidManifest.

    ruamel refuses some texts that libyaml, and so kubectl and the reader, take: tabs between words,
    and what looks like a date and is none.
    """
    line = column = 0
    try:
        return list(yaml.load_all(text))
    except MarkedYAMLError as problem:
        reason = str(problem.problem or "syntax error")
        if mark := problem.problem_mark:
            line, column = mark.line + 1, mark.column + 1
        fix = "write spaces for tabs" if "\t" in text else "write it more plainly"
    except ValueError as problem:
        reason, fix = str(problem), "quote the date"
    message = f"cannot be rewritten with its comments: {reason}; {fix}"
    raise InvalidManifest([replace(error((), message), file=file, line=line, column=column)])


def _is_known(document: Document) -> bool:
    return document.kind in KINDS or document.kind in CORE_KINDS


def _left_alone(document: Document) -> Problem:
    """The warning about an object that cannot be converted, which names what can."""
    (found, *_) = document.problems
    if found.suggestion.removesuffix("List") in KINDS or not document.kind:
        return found
    ours, theirs = ", ".join(JOB_KINDS), ", ".join(foreign_kinds.titles())
    message = (
        f"{document.kind[:80]} is no kind that can be converted; old spellings of {ours} can, "
        f"and {theirs} and {foreign_kinds.SBATCH_SCRIPT}"
    )
    return replace(found, message=message, suggestion="")


def _keep_indentation(yaml: YAML, text: str) -> None:
    """Have lists indented as in the text: in their key's column or further right."""
    lines = [line for line in text.splitlines() if line.lstrip()[:1] not in ("", "#")]
    for line, following in pairwise(lines):
        if line.rstrip().endswith(":") and following.lstrip().startswith("- "):
            indent = len(line) - len(line.lstrip(" -"))
            offset = len(following) - len(following.lstrip()) - indent
            if offset > 0:
                yaml.indent(mapping=2, sequence=2 + offset, offset=offset)
            return


def _objects(document: Any) -> Iterator[CommentedMap]:
    if isinstance(document, CommentedMap):
        if isinstance(items := document.get("items"), CommentedSeq):
            for item in items:
                yield from _objects(item)
        else:
            yield document


def _convert(obj: CommentedMap) -> int:
    """Rewrites one object in place; returns the number of changes."""
    name, changes = obj.get("kind"), 0
    old = KINDS[name].legacy if isinstance(name, str) and name in KINDS else None
    if old is None:
        return 0
    for rename in old.renames:
        parent = _get(obj, rename.parent)
        if parent is not None and rename.old in parent:
            _rename_key(parent, rename.old, rename.new)
            changes += 1
    for dropped in old.dropped:
        parent = _get(obj, dropped.path[:-1])
        if parent is not None and dropped.path[-1] in parent:
            del parent[dropped.path[-1]]
            changes += 1
    spec = _get(obj, ("spec",))
    if old.layout is not None and spec is not None:
        changes += old.layout.convert(spec, _Editor())
    return changes


def _get(obj: Any, path: tuple[str, ...]) -> CommentedMap | None:
    found = legacy_spellings.value_at(obj, path)
    return found if isinstance(found, CommentedMap) else None


def _rename_key(parent: CommentedMap, old: str, new: str) -> None:
    if new in parent:  # the same value twice
        del parent[old]
        return
    index, value, comment = list(parent).index(old), parent[old], parent.ca.items.pop(old, None)
    del parent[old]
    parent.insert(index, new, value)
    if comment is not None:
        parent.ca.items[new] = comment


class _Editor:
    """A `legacy_spellings.Editor` of ruamel's nodes."""

    def mapping(self, content: Mapping[str, Any]) -> CommentedMap:
        return CommentedMap(content)

    def sequence(self, content: list[Any]) -> CommentedSeq:
        return CommentedSeq(content)

    def move(self, source: CommentedMap, key: str, target: CommentedMap, new: str) -> None:
        comment = source.ca.items.pop(key, None)
        target[new] = source[key]
        if comment is not None:
            target.ca.items[new] = comment

    def insert(self, parent: CommentedMap, index: int, key: str, value: Any) -> None:
        parent.insert(index, key, value)
