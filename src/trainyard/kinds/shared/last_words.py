"""What a container wrote last, which tells why it failed. Light: `explain` must start quickly."""

from __future__ import annotations

import re

_REPORT = re.compile(
    r"^(?:[^\n]*torch/distributed/elastic/multiprocessing/api\.py:\d+\] failed .*"
    r"|={20,}\n[^\n]* FAILED *\n-{20,}.*)\Z",
    re.MULTILINE | re.DOTALL,
)
_AGENT = re.compile(r"^[WEI]\d{4} [^\n]*torch/distributed/elastic/[^\n]*\n?", re.MULTILINE)
"""What torchrun itself writes when a rank has failed; the cause is what the rank wrote before."""


def without_report(message: str) -> str:
    """The message without torchrun's report at its end, unless nothing else is there."""
    rest = _AGENT.sub("", _REPORT.sub("", message))
    return rest if rest.strip() else message
