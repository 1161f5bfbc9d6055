"""Options of torchrun that users add, where the launch has options of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trainyard.schema.problems import Path, Problem, error, warning

_LEAST = 3
"""Letters from which on a beginning is taken for the option: argparse takes an unambiguous one."""


def check(
    words: Sequence[str], path: Path, generated: Mapping[str, str], remarks: Mapping[str, str]
) -> Iterator[Problem]:
    """Warnings about options that override generated ones, or do something else than it seems.

    Both map names of options, spelled with underscores: to where the generated value comes from,
    and to what there is to say.
    """
    for index, name in options(words):
        here = (*path, index)
        if ours := _meant(name, generated):
            yield warning(here, f"overrides --{ours}, which {generated[ours]}")
        elif other := _meant(name, remarks):
            yield warning(here, f"--{other} {remarks[other]}")


def options(words: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Place and name of each word that is an option, spelled with underscores."""
    for index, word in enumerate(words):
        if word.startswith("--") and len(word) > len("--"):
            yield index, word[2:].partition("=")[0].replace("-", "_")


def stray(words: Sequence[str], path: Path, where: str) -> Iterator[Problem]:
    """Words that are neither options nor what an option before them may take."""
    for index, word in enumerate(words):
        before = words[index - 1] if index else ""
        if not word.startswith("-") and (not before.startswith("-") or "=" in before):
            yield error(
                (*path, index), f"'{word[:63]}' is no option; the script belongs to {where}"
            )
            return


def leading(words: Sequence[str]) -> Sequence[str]:
    """The options before the script, as far as can be told without knowing what each takes."""
    for index, word in enumerate(words):
        if word in ("-m", "--module") or not (
            word.startswith("-") or (index and words[index - 1].startswith("--"))
        ):
            return words[:index]
    return words


def _meant(name: str, known: Mapping[str, str]) -> str:
    if name in known:
        return name
    return next((k for k in known if len(name) >= _LEAST and k.startswith(name)), "")
