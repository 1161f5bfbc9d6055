"""Write or verify ``docs/conformance.md``: what the embedded cluster does as Kubernetes does.

Usage: ``python -m tools.conformance [--check]``. Nothing is said on the page that no test judges:
it is made from the plays and the lists of expected failures in ``tests/foreign``, from the
differences in ``tests/differential``, and from what ``NotHonoured`` says of each field.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.differential.differences import DIFFERENCES
from tests.foreign.client_suites import SUITES
from tests.foreign.e2e.cases import CASES
from tests.foreign.programs import CLIENTS, PROMISES
from tests.unit.embedded.node import test_every_field as fields
from tools.generated import main

ROOT = Path(__file__).parent.parent
EXPECTED = ROOT / "tests/foreign/expected"
_COMPARED = {
    "core": "Kubernetes' own kinds",
    "jobs": "our kinds",
    "managers": "who owns which field",
}
_INTRODUCTION = """\
# Conformance

<!-- Made by tools/conformance.py; do not edit. -->

What the embedded cluster (`trainyard up`) does as Kubernetes does, what it does otherwise, and what
it has not. Each line comes from a test, which fails when the line is no longer true: also when
something that is listed as absent works after all.
"""
_PROMISED = """\
## Promised

Played by each client from an environment of its own, in every run of the tests
(`tests/foreign/test_clients.py`; the plays are in `tests/foreign/clients`).
"""
_HONOURED = """\
### Fields that are accepted and do nothing

Who sets one is told so by a warning `NotHonoured` (`tests/unit/embedded/node/test_every_field.py`).
Any other field of a pod, a container or a Service has an effect.
"""
_EXPECTATIONS = """\
### What Kubernetes' end-to-end tests expect

Of the {count} expectations of Kubernetes' conformance list about pods, volumes, probes, Services,
DNS and nodes, rebuilt in `tests/foreign/e2e`, {applying} apply here: the others are about kinds and
things that are not offered. {holding} of these hold ({share:.1%}); the rest is listed below, under
`e2e`.
"""
_SUITES = """\
### What the clients' own tests expect

Of the tests that clients bring in their packages, or keep where the table says, run in the soak by
`tests/foreign/test_client_suites.py`. *Bent* and *absent* are those of what is listed so below;
*theirs* fail by a fault of their own.
"""
_DIFFERENCES = """\
### Requests about {what} that are answered otherwise

{count} answers of a kube-apiserver {version} were recorded; to all other requests the embedded one
answers the same (`tests/differential/{test}`, whose names these are).
"""
_ABSENT = """\
## Absent

Tests of Kubernetes and of its clients that fail against the embedded cluster, and why. Those of
their tests that are not listed pass.
"""


def generated() -> dict[Path, str]:
    """The page."""
    parts = [_INTRODUCTION, _PROMISED, _table(("What", "Shown by"), _promised())]
    parts += [_expectations(), _SUITES]
    parts += [_table(("Client", "Tests", "Pass", "Bent", "Absent", "Theirs"), _suites())]
    parts += ["## Bent\n"]
    parts += [_HONOURED, _table(("Field", "What is told"), _not_honoured().items())]
    for subject, what in _COMPARED.items():
        count, version = _recorded(subject)
        test = "test_managers.py" if subject == "managers" else "test_recorded.py"
        parts += [_DIFFERENCES.format(count=count, version=version, what=what, test=test)]
        parts += [_table(("Why", "Requests"), _by_reason(DIFFERENCES[subject].items()))]
    bent = _expected("####", absent=False)
    absent = _expected("###", absent=True)
    if bent:
        parts += ["### Tests of others that expect it otherwise\n", *bent]
    parts += [_ABSENT, *absent] if absent else []
    return {ROOT / "docs/conformance.md": "\n".join(parts)}


def _promised() -> Iterator[tuple[str, str]]:
    steps = {client: client.steps() for client in CLIENTS}
    names = {client: f"{client.package} {client.version()}" for client in CLIENTS}
    for step, sentence in PROMISES.items():
        yield sentence, ", ".join(names[client] for client in CLIENTS if step in steps[client])


def _expectations() -> str:
    """How many of them hold."""
    cases = tomllib.loads((EXPECTED / "e2e.toml").read_text())["case"]
    absent = sum(case["reason"].startswith("absent: ") for case in cases)
    count = sum(map(len, CASES.values()))
    applying, holding = count - absent, count - len(cases)
    return _EXPECTATIONS.format(
        count=count, applying=applying, holding=holding, share=holding / applying
    )


def _suites() -> Iterator[tuple[str, ...]]:
    """Of each client's suite the tests, and how many do not pass for each sort of reason."""
    for suite in SUITES:
        listed = suite.expected()
        sorts = [case["reason"].split(":")[0] for case in listed["case"] if case.get("run", True)]
        numbers = [listed["tests"], listed["tests"] - len(sorts)]
        numbers += [sorts.count(sort) for sort in ("bent", "absent", "theirs")]
        where = "" if suite.source is None else f", {suite.source}"
        yield f"{suite.client.package} {suite.client.version()}{where}", *map(str, numbers)


def _not_honoured() -> dict[str, str]:
    texts = [
        ("pod", text)
        for name, value in fields.POD.items()
        for text in fields.unsupported({name: value}, {})
    ]
    texts += [
        ("container", text.replace(" of container main", "", 1))
        for name, value in fields.CONTAINER.items()
        for text in fields.unsupported({}, {name: value})
    ]
    for name in fields.SERVICE:
        text = (
            fields.unsupported_of_service(name)
            .removeprefix("Service s: ")
            .removeprefix(f"{name}: ")
        )
        texts.append(("Service", f"{name}: {text}"))
    split = [(of, *text.partition(": ")[::2]) for of, text in texts]
    return {f"{of}: `{name}`": why for of, name, why in split}


def _recorded(subject: str) -> tuple[int, str]:
    """How many answers there are, and the version of the server that gave them."""
    (file,) = (ROOT / "tests/differential/recorded").glob(f"{subject}-*.json")
    return file.read_text().count('"code":'), file.stem.removeprefix(f"{subject}-")


def _expected(heading: str, *, absent: bool) -> list[str]:
    """A section for each list of expected failures that has any whose reason begins so, or not."""
    parts: list[str] = []
    for file in sorted(EXPECTED.glob("*.toml")):
        cases = tomllib.loads(file.read_text()).get("case", [])
        found = [
            (case["name"], case["reason"].removeprefix("absent: "))
            for case in cases
            if case["reason"].startswith("absent: ") is absent
        ]
        if found:
            parts += [f"{heading} {file.stem}\n", _table(("Why", "Tests"), _by_reason(found))]
    return parts


def _by_reason(found: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """A row a reason, with the names that have it."""
    names: dict[str, list[str]] = {}
    for name, reason in found:
        names.setdefault(reason, []).append(f"`{name}`")
    return [(reason, "<br>".join(found)) for reason, found in names.items()]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main(generated, lambda kind: {}))
