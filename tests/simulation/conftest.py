"""`pytest tests/simulation --seed N` replays one run; the end tells new seeds and coverage."""

from __future__ import annotations

from typing import Any

import pytest

from tests.new_seeds import first_new
from tests.simulation.seeds import FIXED, FRESH, chunks
from tests.simulation.tally import TALLY

NEW = pytest.StashKey[int]()
"""The first of the new seeds."""


def pytest_configure(config: pytest.Config) -> None:
    given: dict[str, Any] | None = getattr(config, "workerinput", None)
    config.stash[NEW] = given["first_new_seed"] if given else first_new()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["first_new_seed"] = node.config.stash[NEW]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" not in metafunc.fixturenames:
        return
    asked: int | None = metafunc.config.getoption("--seed")
    if asked is not None:
        metafunc.parametrize("seeds", [[asked]], ids=[str(asked)])
        return
    first = metafunc.config.stash[NEW]
    fixed, new = chunks(range(FIXED)), chunks(range(first, first + FRESH))
    # Ids must not change from run to run: duration files and the like go by them.
    ids = [f"{each[0]}" for each in fixed] + [f"new {each[0] - first}" for each in new]
    metafunc.parametrize("seeds", [*fixed, *new], ids=ids)


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["simulation"] = TALLY.dump()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: Any) -> None:
    counted = getattr(node, "workeroutput", {}).get("simulation")
    if counted:
        TALLY.merge(counted)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if TALLY.runs:
        terminalreporter.section("simulation: faults by phase of the job")
        for line in TALLY.lines():
            terminalreporter.write_line(line)
        first = config.stash[NEW]
        if config.getoption("--seed") is None:
            terminalreporter.write_line(f"new seeds: {first} to {first + FRESH - 1}")
