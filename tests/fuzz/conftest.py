"""`pytest tests/fuzz --seed N` tries one seed again; the end tells which seeds were new."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fuzz import seeds
from tests.new_seeds import first_new

NEW = pytest.StashKey[int]()
"""The first of the new seeds."""
_INPUTS = {
    "api_seeds": seeds.API_REQUESTS,
    "live_seeds": seeds.LIVE_REQUESTS,
    "manifest_seeds": seeds.MANIFESTS,
    "message_seeds": seeds.MESSAGES,
}
_PORTIONS = {"live_seeds": (1000,)}
"""One cluster takes all of them, so that its memory has time to settle."""


def pytest_configure(config: pytest.Config) -> None:
    given: dict[str, Any] | None = getattr(config, "workerinput", None)
    config.stash[NEW] = given["first_new_seed"] if given else first_new()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["first_new_seed"] = node.config.stash[NEW]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for name, inputs in _INPUTS.items():
        if name not in metafunc.fixturenames:
            continue
        asked: int | None = metafunc.config.getoption("--seed")
        if asked is not None:
            metafunc.parametrize(name, [[asked]], ids=[str(asked)])
            continue
        first = metafunc.config.stash[NEW]
        portions = seeds.chosen(inputs, first, *_PORTIONS.get(name, ()))
        # Ids must not change from run to run: duration files and the like go by them.
        ids = [f"new {each[0] - first}" if each[0] >= first else f"{each[0]}" for each in portions]
        metafunc.parametrize(name, portions, ids=ids)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.getoption("--seed") is None:
        terminalreporter.write_line(f"fuzz: the new seeds begin at {config.stash[NEW]}")
