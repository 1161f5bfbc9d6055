"""Recognises what looks like a secret, by its name or its place, so that nobody records it."""

from __future__ import annotations

import re
from collections.abc import Sequence

REDACTED = "***"
_WORDS = ["TOKEN", "SECRET", "PASS", "PASSWD", "PASSWORD", "KEY", "APIKEY", "CREDENTIAL", "AUTH"]
_SECRET_WORDS = frozenset(_WORDS) | {f"{word}S" for word in _WORDS}
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_URL_USER = re.compile(r"(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]*://)[^/\s@]+@")
_PAIR = re.compile(r"(?P<dashes>-*)(?P<name>[A-Za-z_][\w.-]*)=(?P<value>.*)\Z", re.DOTALL)
_NUMBER = re.compile(r"[-+\d.eE]*\Z")
"""No secret, whatever its name: ``--max-tokens 512``."""
_FLAG = re.compile(r"--?(?P<name>[A-Za-z_][\w.-]*)\Z")


def is_secret(name: str) -> bool:
    """Whether a variable or an option of this name holds a secret, as ``HF_TOKEN`` does."""
    parts = re.sub(r"\W", "_", _CAMEL.sub("_", name)).upper().split("_")
    return not _SECRET_WORDS.isdisjoint(parts)


def may_be_recorded(name: str, value: str) -> bool:
    """Whether a value of this name may be written down."""
    return not is_secret(name) or _NUMBER.match(value) is not None


def without_credentials(text: str) -> str:
    """Remove users and passwords from the URLs in a text."""
    return _URL_USER.sub(r"\g<scheme>", text)


def redact_words(words: Sequence[str]) -> list[str]:
    """Replace what looks like a secret in a command by ``***``: values of ``NAME=VALUE`` and
    ``--name=VALUE``, and the word after ``--name``. URLs lose their credentials."""
    found: list[str] = []
    follows = False
    for word in words:
        pair, flag = _PAIR.match(word), _FLAG.match(word)
        if follows and not word.startswith("-") and not _NUMBER.match(word):
            found.append(REDACTED)
        elif pair and not may_be_recorded(pair["name"], pair["value"]):
            found.append(f"{word[: -len(pair['value'])]}{REDACTED}")
        else:
            found.append(without_credentials(word))
        follows = flag is not None and is_secret(flag["name"])
    return found
