"""What a schema cannot say: rules over several fields, one file per kind.

``rules_for(kind)`` is the rule function of a kind: model → problems.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from trainyard.api.kinds import KINDS
from trainyard.api.problems import Problem

Rules = Callable[[Any], list[Problem]]


def rules_for(kind: str) -> Rules:
    """The rules of a served kind; imports its file."""
    found: Rules = import_module(f"trainyard.api.rules.{KINDS[kind].rules}").check
    return found
