"""A container's command as a line for a shell.

In debug mode a developer can so run what the pod would have run (decision 109).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_REFERENCE = re.compile(r"(\$\$)|\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
"""https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-container/"""


def shell_line(words: Iterable[str], environment: Mapping[str, str], known: Iterable[str]) -> str:
    """The command as a line that first exports `environment`.

    `known` are names of the container's variables: the shell has them too, and ``$(NAME)`` in the
    command refers to them.
    """
    names = {*environment, *known}
    given = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    return "; ".join([*given, " ".join(_quoted(word, names) for word in words)])


def _quoted(word: str, names: set[str]) -> str:
    """A word in which the shell expands the variables that a kubelet would; ``$$`` means ``$``."""
    parts, done = [], 0
    for found in _REFERENCE.finditer(word):
        if not found[1] and found[2] not in names:
            continue
        parts.append(word[done : found.start()])
        parts.append("$" if found[1] else f"\0{found[2]}")
        done = found.end()
    parts.append(word[done:])
    text, pieces = "", []
    for part in parts:
        if part.startswith("\0"):
            pieces += [shlex.quote(text)] if text else []
            pieces.append(f'"${{{part[1:]}}}"')
            text = ""
        else:
            text += part
    return "".join([*pieces, shlex.quote(text)] if text or not pieces else pieces)


def replaced_commands(
    trained: Sequence[Mapping[str, Any]],
    debugged: Sequence[Mapping[str, Any]],
    template: Sequence[Mapping[str, Any]],
) -> dict[str, str]:
    """Container names, and commands of the pod that trains where the pod in debug mode has others.

    Each line also exports the variables that the kind sets in the pod that trains only.
    """
    found = {}
    for own, other, given in zip(trained, debugged, template, strict=False):
        words = [*(own.get("command") or ()), *(own.get("args") or ())]
        if not words or words == [*(other.get("command") or ()), *(other.get("args") or ())]:
            continue
        known = [str(each["name"]) for each in own.get("env") or ()]
        theirs = {each["name"] for each in given.get("env") or ()}
        there = [each for each in other.get("env") or () if "value" in each]
        environment = {
            each["name"]: each["value"]
            for each in own.get("env") or ()
            if each["name"] not in theirs and "value" in each and each not in there
        }
        found[str(own["name"])] = shell_line(words, environment, known)
    return found
