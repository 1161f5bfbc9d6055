"""The failure card at the end of real failures under each launcher, on terminals of two sizes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.embedded.command_line import CommandLine
from tests.embedded.failures import FAILURES, LAUNCHERS, Failure
from tests.embedded.terminal import rows, started_on_terminal
from tests.tools import require
from trainyard.api.scripts import script_objects
from trainyard.kinds.kind_registry import kinds_by_launcher
from trainyard.kinds.shared.script import Mount, Script

IS_ALL = os.environ.get("TRAINYARD_SOAK") == "1"
TERMINALS = ((120, 40), (60, 24)) if IS_ALL else ((60, 24),)
SELECTION = {
    "plain": ("chained", "grown", "crash", "words"),
    "torchrun": ("peer", "silent", "abort", "exits"),
    "deepspeed": ("module", "words", "crash", "exits"),
    "colossalai": ("exception", "words", "crash", "exits"),
}
"""Always played; all of them where there is time."""
AT_ONCE = 8
LONGEST_SECONDS = 900
"""A launch has taken a minute on a machine that had other things to do."""


def rounds() -> Iterator[list[tuple[str, Failure]]]:
    """Failures to play at the same time, each under a launcher."""
    if not IS_ALL:
        yield [
            (launcher, each)
            for launcher, names in SELECTION.items()
            for each in FAILURES
            if each.name in names
        ]
        return
    for launcher in LAUNCHERS:
        failures = [(launcher, each) for each in FAILURES if launcher in each.launchers]
        for start in range(0, len(failures), AT_ONCE):
            yield failures[start : start + AT_ONCE]


def named(some: list[tuple[str, Failure]]) -> str:
    """`torchrun-exception-to-crash`, or all launchers of a round."""
    launchers = "-".join(dict.fromkeys(launcher for launcher, _ in some))
    return f"{launchers}-{some[0][1].name}-to-{some[-1][1].name}"


@pytest.fixture(scope="module")
def trainyard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    for program in ("torchrun", "deepspeed", "pdsh", "colossalai", "sshd", "ssh"):
        require(program)
    line = CommandLine(tmp_path_factory.mktemp("cards"))
    line.run("up")
    yield line
    line.run("down", code=None)
    line.kill_everything()


@pytest.mark.parametrize("some", list(rounds()), ids=named)
def test_the_reason_is_seen_at_once_and_the_right_one_is_blamed(
    trainyard: CommandLine, some: list[tuple[str, Failure]]
) -> None:
    names = [f"{each.name}-{launcher}" for launcher, each in some]
    files = [
        write(trainyard, each, launcher, name)
        for (launcher, each), name in zip(some, names, strict=True)
    ]
    trainyard.run("submit", *(word for file in files for word in ("-f", file)))
    wrong = [
        f"{name}: {text}"
        for (_, each), name in zip(some, names, strict=True)
        for text in faults(trainyard, name, each)
    ]
    if IS_ALL:
        trainyard.run("delete", *names, "--wait")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("command", ["run", "logs"])
def test_what_was_streamed_is_not_shown_again_below_it(
    trainyard: CommandLine, command: str
) -> None:
    """A traceback once, as it was written, and then the card."""
    failure = next(each for each in FAILURES if each.name == "module")
    name = f"{failure.name}-{command}"
    arguments = ["run", "-f", write(trainyard, failure, "plain", name)]
    if command == "logs":
        trainyard.run("submit", "-f", arguments[-1])
        arguments = ["logs", "-f", name]
    with started_on_terminal(trainyard, *arguments, columns=60, lines=24) as terminal:
        text = terminal.end()[1]
    assert text.count("Traceback (most recent call last)") == 1
    assert text.count("exited with error code") <= 1
    assert [row for row in rows(text, 60)[-12:] if failure.reason in row]
    assert text.count(failure.reason) == 2


def write(trainyard: CommandLine, failure: Failure, launcher: str, name: str) -> str:
    """The files of a job in a folder of its own; the path of its manifest."""
    folder = trainyard.folder / name
    folder.mkdir(exist_ok=True)
    for file, text in {f"{failure.name}.py": failure.script, **failure.beside}.items():
        (folder / file).write_text(text)
    (folder / "job.yaml").write_text(manifest(failure, launcher, name))
    return str(folder / "job.yaml")


def manifest(failure: Failure, launcher: str, name: str) -> str:
    """A job of two ranks, each on a replica of its own."""
    options: dict[str, Any] = {"target": f"{failure.name}.py", **failure.script_options}
    if options.get("form") == "program":
        launcher = "none"  # the others start Python only
    if claim := options.pop("claim", ""):
        options["mounts"] = [Mount({"persistentVolumeClaim": {"claimName": "data"}}, claim)]
    text = script_objects.text(
        Script(
            name=name,
            launcher=launcher,
            replicas=2,
            image=kinds_by_launcher()[launcher].image,
            **options,
        )
    )
    job = yaml.safe_load(text)
    for container in containers(job):
        container.update(failure.container)
    return yaml.safe_dump(job)


def containers(node: Any) -> Iterator[dict[str, Any]]:
    """Every container of a manifest."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "containers":
                yield from value
            yield from containers(value)
    elif isinstance(node, list):
        for value in node:
            yield from containers(value)


def faults(trainyard: CommandLine, name: str, failure: Failure) -> Iterator[str]:
    """What is wrong with how a failure is told."""
    show = Path(os.environ["SHOW_CARDS"]) if "SHOW_CARDS" in os.environ else None
    for columns, lines in TERMINALS:
        arguments = ("wait", name, "--timeout", str(LONGEST_SECONDS))
        with started_on_terminal(trainyard, *arguments, columns=columns, lines=lines) as terminal:
            code, text = terminal.end(LONGEST_SECONDS)
        seen = rows(text, columns)
        if show is not None:
            with show.open("a") as file:
                print(f"--- {name} {columns}", *seen, sep="\n", file=file)
        last = " ".join(" ".join(seen[-12:]).split())
        if code != 1:
            yield f"ended with {code}: {text}"
        if (count := last.count(failure.reason)) != 1:
            yield f"{columns}: {failure.reason!r} stands there {count} times: {last}"
        place = f"{failure.place}: {failure.source}" if failure.source else failure.place
        if place[: columns - 12] not in last:
            yield f"{columns}: no {place} in {last}"
        if failure.also not in last:
            yield f"{columns}: no {failure.also!r} in {last}"
        if "Traceback" in text or "Root Cause" in text:
            yield f"{columns}: a traceback again: {text}"
    said = trainyard.run("explain", name)
    if failure.who and f"{failure.who} failed (" not in said:
        yield f"{failure.who} is not blamed: {said}"
    if said.count(failure.reason) != 1:
        yield f"explain says it {said.count(failure.reason)} times: {said}"
