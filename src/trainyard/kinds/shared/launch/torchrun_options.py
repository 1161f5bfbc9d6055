"""Options of torchrun that users add to those of the launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trainyard.schema.problems import Path, Problem, error, warning

_MIN_ABBREVIATION = 3
"""An abbreviation with this many letters counts as the option: argparse takes unambiguous ones."""


def check(
    words: Sequence[str], path: Path, generated: Mapping[str, str], remarks: Mapping[str, str]
) -> Iterator[Problem]:
    """Warnings about options that override those of the launch, or do not do what they seem to.

    Both mappings are by option, spelled with underscores: `generated` says where our value comes
    from, `remarks` what the option really does.
    """
    for index, name in options(words):
        here = (*path, index)
        if ours := _option_named(name, generated):
            yield warning(here, f"overrides --{ours}, which {generated[ours]}")
        elif other := _option_named(name, remarks):
            yield warning(here, f"--{other} {remarks[other]}")


def options(words: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Place and name of each word that is an option, spelled with underscores."""
    for index, word in enumerate(words):
        if word.startswith("--") and len(word) > len("--"):
            yield index, word[2:].partition("=")[0].replace("-", "_")


def check_stray_words(words: Sequence[str], path: Path, where: str) -> Iterator[Problem]:
    """An error about the first word that is neither an option nor its value."""
    for index, word in enumerate(words):
        before = words[index - 1] if index else ""
        if not word.startswith("-") and (not before.startswith("-") or "=" in before):
            yield error(
                (*path, index), f"'{word[:63]}' is no option; the script belongs to {where}"
            )
            return


def before_script(words: Sequence[str]) -> Sequence[str]:
    """The options before the script; which of them take a value is guessed."""
    for index, word in enumerate(words):
        if word in ("-m", "--module") or not (
            word.startswith("-") or (index and words[index - 1].startswith("--"))
        ):
            return words[:index]
    return words


def _option_named(name: str, known: Mapping[str, str]) -> str:
    if name in known:
        return name
    return next((k for k in known if len(name) >= _MIN_ABBREVIATION and k.startswith(name)), "")
