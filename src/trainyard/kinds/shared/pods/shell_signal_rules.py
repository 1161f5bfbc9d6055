"""Shells that keep SIGTERM from the training: it is killed with them, before it can save.

A shell passes no signal on. It is out of the way where it becomes the program: by `exec` or, as
bash does, with the last command of `-c`. What follows the program, or reads its output, keeps it
there.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainyard.schema.problems import Path, Problem, warning

_TRAINING = re.compile(r"(.*/)?((?:python|torchrun|deepspeed|accelerate|colossalai)[\d.]*)")
_BECOMES_LAST = ("bash", "zsh", "ksh", "mksh")
"""Shells that do so with the last command; dash, the `sh` of Debian, stays (0.5.12)."""
_SHELLS = (*_BECOMES_LAST, "sh", "dash", "ash")
_REDIRECTIONS = re.compile(r"\d*[<>]&\d*-?|&>>?")
_SEPARATORS = re.compile(r"[;&|\n()]+")
_PIPES = ("|", "|&")
_KEYWORDS = ("do", "then", "else", "{", "!", "time", "nohup", "env")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)


def check_shell(container: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    """A warning about a container whose shell stays above the training."""
    words = [
        str(each) for each in (*(container.get("command") or ()), *(container.get("args") or ()))
    ]
    script = _script_of(words)
    stays = bool(script) and words[0].rpartition("/")[2] not in _BECOMES_LAST
    if program := _kept_from_signals(script, stays=stays):
        yield warning(
            (*path, "command"),
            f"the shell keeps SIGTERM from {program}, which is killed at a pause, a deadline or a "
            f"deletion before it can save: make `exec {program} …` the last command, and leave out "
            "a pipe (`trainyard logs` keeps the output), or pass the signal on with `trap`",
        )


def _script_of(words: Sequence[str]) -> str:
    """What a shell is given by `-c`; empty without."""
    if not words or words[0].rpartition("/")[2] not in _SHELLS:
        return ""
    for index, word in enumerate(words[1:-1], 1):
        if not word.startswith("-"):
            return ""
        if re.fullmatch(r"-[a-z]*c", word):
            return words[index + 1]
    return ""


def _kept_from_signals(script: str, *, stays: bool) -> str:
    """The program that trains below the shell; empty where there is none."""
    text = _REDIRECTIONS.sub(" ", script)
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|\n()")
    lexer.whitespace = " \t\r"
    lexer.commenters = ""
    try:
        tokens = list(lexer)
    except ValueError:  # a quote without its end
        return ""
    if "trap" in tokens:
        return ""
    commands: list[tuple[list[str], str]] = []
    begun: list[str] = []
    for token in (*tokens, ";"):
        if _SEPARATORS.fullmatch(token):
            commands.append((begun, token))
            begun = []
        else:
            begun.append(token)
    for index, (words, end) in enumerate(commands):
        program = _training_in(words)
        is_followed = stays or end == "&" or any(more for more, _ in commands[index + 1 :])
        if program and (is_followed or (index and commands[index - 1][1] in _PIPES)):
            return program
    return ""


def _training_in(words: Sequence[str]) -> str:
    """The program of a command, if it is one that trains."""
    for word in words:
        if word in _KEYWORDS or _ASSIGNMENT.fullmatch(word):
            continue
        found = _TRAINING.fullmatch(word)
        return found[2] if found else ""
    return ""
