"""Mutants that no test can notice, since they behave like the original, each with the reason."""

from __future__ import annotations

from tools.mutants import Mutant

_EQUIVALENT: dict[tuple[str, str], str] = {}
"""By the function as one would write it, and the line that the mutant puts in."""


def is_equivalent(mutant: Mutant) -> bool:
    """Whether the mutant is listed."""
    functions = {function for function, _ in _EQUIVALENT}
    if mutant.title not in functions:
        return False
    new = [line[1:].strip() for line in mutant.change() if line.startswith("+")]
    return (mutant.title, "\n".join(new)) in _EQUIVALENT
