"""Effective requests of a pod, by the rules of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.embedded.scheduler.resource_requests import (
    Amounts,
    describe_amount,
    format_amount,
    pod_requests,
)


def _container(cpu: str, **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [_container("1"), _container("500m")]}, 1500),
        ({"containers": [_container("1")], "initContainers": [_container("3")]}, 3000),
        (
            {
                "containers": [_container("1")],
                "initContainers": [_container("1", restartPolicy="Always"), _container("1")],
            },
            2000,
        ),
        ({"containers": [_container("1")], "overhead": {"cpu": "250m"}}, 1250),
        ({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]}, 2000),
        ({"containers": [{"name": "c"}]}, 0),
    ],
    ids=["sum", "init container", "sidecar", "overhead", "limit", "nothing"],
)
def test_a_pods_cpu(spec: dict[str, Any], cpu: int) -> None:
    assert pod_requests({"spec": spec}).get("cpu", 0) == cpu


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [("cpu", 1500, "1500m"), ("memory", 2 << 30, "2Gi"), ("nvidia.com/gpu", 8, "8")],
)
def test_amounts_are_written_as_quantities(name: str, value: int, shown: str) -> None:
    assert format_amount(name, value) == shown


def test_memory_reads_in_gibibytes() -> None:
    assert describe_amount("memory", 24684084 << 10) == "23.5Gi memory"


def test_amounts_of_nothing_are_left_out() -> None:
    nothing: Amounts = {}
    assert pod_requests({"spec": {"containers": [_container("0")]}}) == nothing
