"""``$(NAME)`` in commands, arguments and values, exactly as Kubernetes expands it.

``$$`` stands for one ``$``; a reference that cannot be resolved stays as it is. Source:
k8s.io/kubernetes/third_party/forked/golang/expansion.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(\$|\([^)]*\))")


def expand(text: str, variables: Mapping[str, str]) -> str:
    if "$" not in text:
        return text

    def replacement(match: re.Match[str]) -> str:
        token = match[1]
        if token == "$":
            return "$"
        return variables.get(token[1:-1], match[0])

    return _REFERENCE.sub(replacement, text)
