"""`pytest tests/simulation --seed N` replays one run; the coverage of all is printed at the end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.tally import TALLY


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="replay one simulated run")


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["simulation"] = TALLY.dump()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: Any) -> None:
    counted = getattr(node, "workeroutput", {}).get("simulation")
    if counted:
        TALLY.merge(counted)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if TALLY.runs:
        terminalreporter.section("simulation: faults by phase of the job")
        for line in TALLY.lines():
            terminalreporter.write_line(line)
