"""YAML to plain data as ``kubectl`` reads it, keeping the position of every key.

libyaml composes the nodes; the values are made here, because PyYAML's own constructor drops
duplicate keys silently and turns ``22:22`` into 1342 and dates into objects. Sizes are bounded,
so that no file can exhaust the memory (a few nested aliases can stand for billions of values).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import yaml
from yaml._yaml import CParser
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from trainyard.schema.parsed_yaml import Mistake, Parsed

MAX_CHARACTERS = 3_000_000
MAX_VALUES = 300_000
MAX_DEPTH = 100
MAX_BROKEN = 20
"""Documents of broken syntax in one file after which the rest is not read."""
# A text of this length cannot nest deeply enough to overflow libyaml's recursive composer.
_SAFE_CHARACTERS = 20_000

DUPLICATE = "duplicate key"
"""The beginning of the message about a key that occurs twice."""
_PLAIN = "plain"
_TEXT = "text"
_CORE_TAG = "tag:yaml.org,2002:"
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLEANS = {
    **{w: True for word in ("true", "yes", "on") for w in (word, word.title(), word.upper())},
    **{w: False for word in ("false", "no", "off") for w in (word, word.title(), word.upper())},
}
_NUMBER_START = frozenset("+-.0123456789")
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]*)\Z", re.ASCII)
_BASED = re.compile(r"([-+]?)0([xXoObB]?)([0-9a-fA-F_]+)\Z", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z", re.ASCII)
_NOT_FINITE = re.compile(r"([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))\Z")
_SEPARATOR = re.compile(r"^---(?=\s|\Z)", re.MULTILINE)
_BASES = {"x": 16, "o": 8, "b": 2, "": 8}


class _Nodes(CParser):
    """Composes nodes whose tags say only whether a scalar was plain."""

    def __init__(self, text: str) -> None:
        CParser.__init__(self, text)

    def resolve(self, kind: type[Node], value: str, implicit: Any) -> str:
        return _PLAIN if kind is ScalarNode and implicit[0] else _TEXT

    def descend_resolver(self, current: Any, index: Any) -> None:
        """Path resolvers are not used."""

    def ascend_resolver(self) -> None:
        """Path resolvers are not used."""


_EXPLANATIONS = {
    "did not find expected key": "this is no key of the mapping that begins in line {}: check the "
    "indentation and the quotes",
    "did not find expected '-' indicator": "this is no item of the list that begins in line {}: "
    "check the indentation",
    "did not find expected ',' or ']'": "the list that opens in line {} lacks a comma or its ]",
    "did not find expected ',' or '}'": "the mapping that opens in line {} lacks a comma or its }}",
    "found unexpected end of stream": "the quote that opens in line {} is not closed",
    "mapping values are not allowed in this context": "no key can stand before this colon: check "
    "the indentation, and quote a value that holds ': '",
}
"""libyaml's messages in other words; {} is the line in which the context begins."""


class _TooMuchError(Exception):
    """A document beyond the limits."""


def parse(text: str) -> Iterator[Parsed]:
    """The documents of a text; one with broken syntax has no data and ends at the next `---`."""
    if len(text) > MAX_CHARACTERS:
        yield _broken(f"the file is longer than {MAX_CHARACTERS} characters", 0, 0)
        return
    text = text.removeprefix("\ufeff")
    start, lines = 0, 0
    for _ in range(MAX_BROKEN):
        broken = 0
        for parsed in _documents("\n" * lines + text[start:]):
            yield parsed
            broken = parsed.mistakes[0].line if parsed.is_broken else 0
        following = _next_document(text, start, broken - lines) if broken else None
        if following is None:
            return
        lines += text.count("\n", start, following)
        start = following


def _next_document(text: str, start: int, lines: int) -> int | None:
    """The offset of the next document that begins at least this many lines after ``start``."""
    for match in _SEPARATOR.finditer(text, start + 1):
        if text.count("\n", start, match.start()) >= lines - 1:
            return match.start()
    return None


def _documents(text: str) -> Iterator[Parsed]:
    """Each document up to the first of broken syntax."""
    try:
        if len(text) > _SAFE_CHARACTERS and _is_too_deep(text):
            yield _broken(f"nested more than {MAX_DEPTH} levels deep", 0, 0)
            return
        nodes = _Nodes(text)
        try:
            while nodes.check_node():
                yield _document(nodes.get_node())
        finally:
            nodes.dispose()
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        yield _broken(f"not valid YAML: {_explain(problem, text)}", line, column)
    except yaml.reader.ReaderError as problem:
        line, column = _position(text, problem.position)
        yield _broken(f"not valid YAML: {problem.reason}", line, column)
    except UnicodeEncodeError as problem:
        line, column = _position(text, problem.start)
        yield _broken("not valid YAML: a character that is not Unicode text", line, column)


def _explain(problem: yaml.MarkedYAMLError, text: str) -> str:
    """The message about a syntax error: libyaml's own only says what its grammar expected."""
    mark = problem.problem_mark
    lines = text.splitlines()
    before = lines[mark.line][: mark.column + 1] if mark and mark.line < len(lines) else ""
    if "\t" in before and before.isspace():
        return "a tab cannot indent; write spaces"
    if (explanation := _EXPLANATIONS.get(problem.problem or "")) is not None:
        return explanation.format(problem.context_mark.line + 1 if problem.context_mark else "?")
    return " ".join(w for w in (problem.context, problem.problem) if w) or "syntax error"


def _is_too_deep(text: str) -> bool:
    """Whether collections nest deeper than allowed, found without recursion."""
    events = CParser(text)
    depth = 0
    try:
        while (event := events.get_event()) is not None and depth <= MAX_DEPTH:
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    except yaml.MarkedYAMLError:
        pass  # the composer ends at the same place, and says so after what comes before
    finally:
        events.dispose()
    return depth > MAX_DEPTH


def _broken(message: str, line: int, column: int) -> Parsed:
    return Parsed(None, (Mistake(message, line, column),), None)


def _position(text: str, offset: int) -> tuple[int, int]:
    before = text[: max(offset, 0)]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def _document(node: Node | None) -> Parsed:
    if node is None:
        return Parsed(None, (), None)
    builder = _Builder()
    try:
        data = builder.value(node, 0)
    except _TooMuchError as problem:
        builder.mistake(node, str(problem))
        data = None
    return Parsed(data, tuple(builder.mistakes), node)


class _Builder:
    """Turns nodes into data, counting values and collecting mistakes."""

    def __init__(self) -> None:
        self.mistakes: list[Mistake] = []
        self._left = MAX_VALUES

    def mistake(self, node: Node, message: str) -> None:
        self.mistakes.append(Mistake(message, node.start_mark.line + 1, node.start_mark.column + 1))

    def value(self, node: Node, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise _TooMuchError(f"the document stands for more than {MAX_VALUES} values")
        if depth > MAX_DEPTH:
            raise _TooMuchError(f"the document is nested more than {MAX_DEPTH} levels deep")
        if isinstance(node, SequenceNode):
            return [self.value(child, depth + 1) for child in node.value]
        if isinstance(node, MappingNode):
            return self._mapping(node, depth)
        return self._scalar(node)

    def _mapping(self, node: MappingNode, depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        merged: list[Node] = []
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self.mistake(key_node, "a key must be a plain text")
                continue
            key = key_node.value
            if key == "<<" and key_node.tag in (_PLAIN, _CORE_TAG + "merge"):
                merged.append(value_node)
            elif key in out:
                self.mistake(key_node, f"{DUPLICATE} '{key[:60]}'")
                out[key] = self.value(value_node, depth + 1)  # the last one counts, as to kubectl
            else:
                out[key] = self.value(value_node, depth + 1)
        for source in merged:
            self._merge(source, out, depth)
        return out

    def _merge(self, source: Node, out: dict[str, Any], depth: int) -> None:
        """Keys of an alias after ``<<``; those present already win."""
        parts = source.value if isinstance(source, SequenceNode) else [source]
        for part in parts:
            if not isinstance(part, MappingNode):
                self.mistake(part, "'<<' takes a mapping or a list of mappings")
                continue
            for key, value in self._mapping(part, depth + 1).items():
                out.setdefault(key, value)

    def _scalar(self, node: Node) -> Any:
        text: str = node.value
        if node.tag == _TEXT:
            return text
        if node.tag != _PLAIN:
            return self._tagged(node)
        value = _plain(text)
        if isinstance(value, int | float) and not _is_finite(value):
            self.mistake(
                node, f"'{text[:40]}' does not fit a number of the Kubernetes API; quote it"
            )
            return text
        return value

    def _tagged(self, node: Node) -> Any:
        kind = str(node.tag).removeprefix(_CORE_TAG)
        if kind == "str":
            return node.value
        value = _plain(node.value)
        wanted = {"int": int, "float": float, "bool": bool, "null": type(None)}.get(kind)
        if wanted is float and type(value) is int:
            return float(value)
        if wanted is None or type(value) is not wanted:
            self.mistake(node, f"the tag '{str(node.tag)[:40]}' cannot be used here")
            return node.value
        return value


def _is_finite(value: int | float) -> bool:
    return abs(value) < 2**63 if isinstance(value, int) else abs(value) < float("inf")


@lru_cache(maxsize=8192)
def _plain(text: str) -> Any:
    """The value of an unquoted scalar."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if text[0] not in _NUMBER_START:
        return text
    if _INTEGER.match(text) and len(text) < 400:
        return int(text.replace("_", ""))
    if (match := _BASED.match(text)) and len(text) < 400:
        sign, base, digits = match.groups()
        try:
            return int(sign + digits.replace("_", ""), _BASES[base.lower()])
        except ValueError:
            return text
    if _FLOAT.match(text):
        return float(text)
    if _NOT_FINITE.match(text):
        return float(text.lower().replace(".", ""))
    return text
