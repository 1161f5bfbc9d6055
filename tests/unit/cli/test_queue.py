"""Queues as the command line makes and shows them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.client.objects import NOW, ago
from trainyard.api.queues import new_queue
from trainyard.cli.commands.queue import limit, queue_table
from trainyard.client.cluster_target import CommandError


def test_a_queue_has_only_what_was_asked_for() -> None:
    assert new_queue("night")["spec"] == {}
    full = new_queue(
        "night",
        quota={"cpu": "16", "nvidia.com/gpu": "8"},
        priority=7,
        max_duration="1d",
        closed=True,
    )
    assert full["spec"] == {
        "quota": {"requests": {"cpu": "16", "nvidia.com/gpu": "8"}},
        "priority": 7,
        "maxDuration": "1d",
        "closed": True,
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quota": {"cpu": "many"}}, "cannot create queue night: spec.quota"),
        ({"max_duration": "soon"}, "cannot create queue night: spec.maxDuration"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        new_queue("night", **options)


def test_a_limit_names_a_resource_and_how_much_of_it() -> None:
    assert limit("nvidia.com/gpu=8") == ("nvidia.com/gpu", "8")
    with pytest.raises(CommandError, match="not of the form RESOURCE=N"):
        limit("cpu")


def test_use_is_told_beside_what_is_allowed() -> None:
    queue = {
        "metadata": {"name": "night", "creationTimestamp": ago(60)},
        "spec": {"closed": True, "quota": {"requests": {"cpu": 16, "memory": "1Gi"}}},
        "status": {"allocated": {"cpu": 2}, "pods": {"running": 1, "pending": 3}},
    }
    row = queue_table([queue], NOW).splitlines()[1]
    assert "Closed" in row
    assert "cpu 2/16, memory 0/1Gi" in row
    assert row.split()[-3:] == ["1", "3", "60s"]
