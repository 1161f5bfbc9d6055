"""Commands in the pages of operations can be read, and those that no test runs are still there."""

from __future__ import annotations

import shlex

from tests.cluster.test_operations import NOT_RUN, PAGES, commands


def test_what_is_not_run_is_still_on_a_page() -> None:
    text = "\n".join(command for page in PAGES.glob("*.md") for command in commands(page.name))
    for part in NOT_RUN:
        assert part in text
    for command in text.splitlines():
        assert shlex.split(command)
