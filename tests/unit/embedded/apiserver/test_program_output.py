"""What of an object is hidden from those who may not read the logs in its namespace."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.composition.kinds_extension import EXTENSION
from trainyard.embedded.apiserver.requests.program_output import OutputFilter
from trainyard.embedded.cluster_extension import NO_EXTENSION
from trainyard.kube.embedded_contract import HIDDEN_OUTPUT

JOBS, PODS = "pytorchtrainingjobs.batch.tensorstack.dev", "pods"
_FILTER = OutputFilter(EXTENSION)
WORDS = "what the program wrote"


def _status(resource: str, status: dict[str, Any]) -> Any:
    obj = {"metadata": {"name": "a", "namespace": "b"}, "spec": {"x": WORDS}, "status": status}
    shown = _FILTER.hide(resource, obj)
    assert shown["spec"] == {"x": WORDS}
    return shown["status"]


@pytest.mark.parametrize(
    ("resource", "status"),
    [
        (JOBS, {"aFieldOfTomorrow": WORDS}),
        (JOBS, {"aFieldOfTomorrow": {"deep": [{"name": WORDS}]}}),
        (JOBS, {"conditions": [{"type": "T", "reason": "ReplicaFailure", "message": WORDS}]}),
        (JOBS, {"conditions": [{"type": "T", "message": WORDS}]}),
        (JOBS, {"attempts": [{"reason": "Error", "cause": WORDS, "message": WORDS}]}),
        (JOBS, {"progress": {"message": WORDS, "metrics": [{"name": WORDS, "value": WORDS}]}}),
        (JOBS, {"internal": {"failures": {"worker-0": {"cause": WORDS}}}}),
        (
            JOBS,
            {"nodeCheck": {"state": "BadNodes", "message": WORDS, "badNodes": [{"reason": WORDS}]}},
        ),
        (PODS, {"message": WORDS}),
        (PODS, {"containerStatuses": [{"state": {"terminated": {"message": WORDS}}}]}),
        (PODS, {"initContainerStatuses": [{"lastState": {"terminated": {"message": WORDS}}}]}),
        (PODS, {"ephemeralContainerStatuses": [{"state": {"waiting": {"message": WORDS}}}]}),
    ],
)
def test_a_text_is_hidden_unless_it_is_known_to_be_ours(
    resource: str, status: dict[str, Any]
) -> None:
    shown = str(_status(resource, status))
    assert WORDS not in shown
    assert HIDDEN_OUTPUT in shown


def test_the_facts_are_shown() -> None:
    terminated = {"exitCode": 3, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:00:00Z"}
    pod: dict[str, Any] = {
        "phase": "Failed",
        "podIP": "10.0.0.1",
        "conditions": [{"type": "PodScheduled", "reason": "Unschedulable", "message": "0/1 nodes"}],
        "containerStatuses": [
            {"name": "main", "ready": False, "state": {"terminated": terminated}}
        ],
    }
    assert _status(PODS, pod) == pod
    job: dict[str, Any] = {
        "phase": "Failed",
        "attempts": [{"number": 1, "replica": "a-worker-0", "exitCode": 3, "reason": "Error"}],
        "progress": {"step": 7, "checkpoint": None},
        "completionTime": "2026-01-01T00:00:00Z",
    }
    assert _status(JOBS, job) == job


def test_messages_of_events_are_shown_by_their_reason() -> None:
    event = {"metadata": {"name": "e"}, "reason": "ReplicaFailure", "message": WORDS}
    assert _FILTER.hide("events", event)["message"] == HIDDEN_OUTPUT
    started = event | {"reason": "Started"}
    assert _FILTER.hide("events", started) == started


def test_config_maps_that_the_controller_made_are_closed_and_others_open() -> None:
    """It keeps the stacks of what hung in one."""
    mine: dict[str, Any] = {"metadata": {"name": "c"}, "data": {"a": WORDS}}
    assert _FILTER.hide("configmaps", mine) == mine
    made = mine | {"metadata": {"name": "c", "ownerReferences": [{"controller": True}]}}
    assert _FILTER.hide("configmaps", made)["data"] == {"a": HIDDEN_OUTPUT}


def test_a_cluster_that_knows_no_kind_shows_none_of_their_texts() -> None:
    job = {"metadata": {"name": "a"}, "status": {"phase": "Failed", "attempts": [{"reason": "x"}]}}
    hidden = OutputFilter(NO_EXTENSION).hide(JOBS, job)["status"]
    assert hidden == {"phase": "Failed", "attempts": [{"reason": HIDDEN_OUTPUT}]}
    assert _FILTER.hide(JOBS, job) == job
