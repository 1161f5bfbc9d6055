"""Recognises what looks like a secret, so that nobody records it: by the name before it, in a
variable, an option, a header, an address or JSON, or by its own form, as ``ghp_`` begins tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

REDACTED = "***"


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SECRET_WORDS = frozenset(
    f"{word}{ending}"
    for word in _set(
        """
        PASS PASSWD PASSWORD PASSWORT PASSPHRASE PWD SECRET CREDENTIAL CRED COOKIE TOKEN JWT BEARER
        PAT KEY APIKEY AUTH AUTHORIZATION SIGNATURE SIG SAS
        """
    )
    for ending in ("", "S")
)
_ENDINGS = re.compile(
    "(PASSWORD|PASSWD|PASSPHRASE|PWD|SECRET|CREDENTIAL|COOKIE|TOKEN"
    "|(API|ACCESS|ACCOUNT|SECRET|PRIVATE)KEY)S?"
    r"\Z"
)
"""Of words such as ``PGPASSWORD`` and ``authtoken``."""
_VAGUE = _set("KEY KEYS PAT PATS PASS AUTH SIG SIGS SIGNATURE SIGNATURES SAS PWD")
"""Names of columns, patterns and modes are called so too: ``--text-key content``."""
_KEYS = _set("API ACCESS ACCOUNT SECRET PRIVATE SSH SIGNING ENCRYPTION MASTER LICENSE")
"""What stands before ``KEY`` where no column is meant."""
_ABOUT = _set("FILE PATH DIR FOLDER TYPE MODE METHOD NAME COUNT LENGTH SIZE COLUMN FIELD URL")
"""How a name ends that says where a secret is, or what of it: ``--token-file``."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_URL_USER = re.compile(r"(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]*://)[^/\s@]+@")
_NAME = r"(?P<name>[A-Za-z_][\w.-]{0,200})"
_PAIR = re.compile(rf"(?P<before>[-+~]*){_NAME}=(?P<value>.*)\Z", re.DOTALL)
_FLAG = re.compile(rf"--?{_NAME}\Z")
_QUOTED = r"'[^']*'|\"(?:[^\"\\]|\\.)*\""
_WITHIN = re.compile(
    rf"""(?:(?<![\w.-])--?)?(?<![\w.])(?<!\w-){_NAME}\\?["']?
    (?:\s*[=:]\s*|(?P<space>(?<=[\w-])[ ]+))
    (?P<value>(?:(?:Bearer|Basic|Token|Digest)\s+)?
    (?:{_QUOTED}|\\"[^"\\]*\\"|[^\s"',;&|(){{}}\]]+))""",
    re.VERBOSE | re.IGNORECASE,
)
"""A name and its value within a text: a line for a shell, JSON, a header, an address' query, a
string that says how to connect."""
_SCHEME = re.compile(r"(?P<before>\b(?:Bearer|Basic)\s+)(?P<value>[\w.~+/=-]{8,})", re.IGNORECASE)
_NO_SECRET = re.compile(
    r"[-+\d.eE_]*|true|false|none|null|auto|<[^>]*>|\[[A-Za-z_]+\]"
    r"|\$\w+|\$?\{[^}]*\}|\$\([^)]*\)|\*+",
    re.IGNORECASE,
)
"""Numbers, switches, tokens of a vocabulary, and what names a secret or was hidden before."""
_PLAIN = re.compile(r"[\[(]?[A-Za-z][A-Za-z_.,-]{,24}[\])]?|.*[*?].*|[./~].*/.*", re.DOTALL)
"""A word, a pattern or a path: no secret behind a vague name."""
_STRONG = re.compile("PASS|PWD|SECRET|CRED|COOKIE|APIKEY")
_TOKEN = re.compile(
    r"""\b(?:
    (?:hf|gh[opsur]|github_pat|glpat|npm|dckr_pat|tskey|ntn|lin_api|nvapi|shpat|pul|rk_live|sk_live
    |gsk|r8|xai|pplx|lsv2_pt|lsv2_sk)
    [_-](?:(?=[\w-]*\d)[\w-]{10,}|[A-Za-z]{30,})  # Hugging Face, GitHub, GitLab, npm, Docker, ...
    | sk-(?:proj-|ant-|or-v1-)?(?:(?=[\w-]*\d)[\w-]{16,}|[A-Za-z]{30,})  # OpenAI, Anthropic, ...
    | dapi[0-9a-f]{32}                          # Databricks
    | xox[abeoprs]-[\w-]{10,}                   # Slack
    | pypi-[\w-]{16,}
    | (?:AKIA|ASIA)[A-Z0-9]{16}                  # AWS
    | AIza[\w-]{35} | ya29\.[\w-]{20,}          # Google
    | eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}  # a JSON web token
    )""",
    re.VERBOSE,
)
"""Beginnings that their makers document for tokens."""


def is_secret(name: str) -> bool:
    """Whether a variable or an option of this name holds a secret, as ``HF_TOKEN`` does."""
    words = _words(name)
    return words[-1] not in _ABOUT and any(map(_is_secret_word, words))


def may_be_recorded(name: str, value: str) -> bool:
    """Whether a value of this name may be written down."""
    if not is_secret(name) or name in ("PWD", "OLDPWD"):
        return True
    words = _words(name)
    if _NO_SECRET.fullmatch(value):
        return not (value.isdigit() and any(map(_STRONG.search, words)))
    is_vague = all(word in _VAGUE for word in filter(_is_secret_word, words))
    return is_vague and _KEYS.isdisjoint(words) and _PLAIN.fullmatch(value) is not None


def without_credentials(text: str) -> str:
    """Remove users and passwords from the URLs in a text."""
    return _URL_USER.sub(r"\g<scheme>", text)


def without_secrets(text: str) -> str:
    """Replace what looks like a secret in a text by ``***``: a line for a shell, a string that
    says how to connect, an address, a header, JSON."""
    text, start = without_credentials(text), 0
    while (found := _WITHIN.search(text, start)) is not None:
        # What is shown may hold the next name: ``export A=b``, ``https://host?a=b``.
        start, shown = found.start("value"), _shown(found)
        if shown != found["value"]:
            text = f"{text[:start]}{shown}{text[found.end() :]}"
            start += len(shown)
    return _TOKEN.sub(REDACTED, _SCHEME.sub(rf"\g<before>{REDACTED}", text))


def redact_value(name: str, value: str) -> str:
    """Replace what looks like a secret in the value of a variable or an option."""
    return without_secrets(value) if may_be_recorded(name, value) else REDACTED


def redact_words(words: Sequence[str]) -> list[str]:
    """Replace what looks like a secret in a command by ``***``: values of ``NAME=VALUE`` and
    ``--name=VALUE``, the word after ``--name``, and what `without_secrets` sees in a word."""
    found: list[str] = []
    flag = ""
    for word in words:
        pair, next_flag = _PAIR.match(word), _FLAG.match(word)
        if flag and not word.startswith("-") and not may_be_recorded(flag, word):
            found.append(REDACTED)
        elif pair:
            value = redact_value(pair["name"], pair["value"])
            found.append(f"{word[: len(word) - len(pair['value'])]}{value}")
        else:
            found.append(without_secrets(word))
        flag = next_flag["name"] if next_flag else ""
    return found


def _words(name: str) -> list[str]:
    return re.sub(r"\W", "_", _CAMEL.sub("_", name)).upper().strip("_").split("_")


def _is_secret_word(word: str) -> bool:
    return word in _SECRET_WORDS or _ENDINGS.search(word) is not None


def _shown(found: re.Match[str]) -> str:
    """What may be shown of a value within a text."""
    value = found["value"]
    is_option = found[0].startswith("-") and not value.startswith("-")
    bare = value.strip("\\\"'")
    if (found["space"] and not is_option) or may_be_recorded(found["name"], bare):
        return value
    quote = value[: value.index(bare)] if value[0] in "\\\"'" else ""
    return f"{quote}{REDACTED}{quote}"
