"""After creation only the pause switch and the wanted size of an elastic job may change."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.unit.kinds import manifests as m

from trainyard.kinds.kind_admission import admit

ELASTIC = m.pytorch(
    torchrunConfig={"enabled": True},
    elastic={"enabled": True, "minReplicas": 2, "expectedReplicas": 4, "maxReplicas": 8},
)


def merged(stored: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """A JSON merge patch applied, as ``kubectl apply`` and ``patch`` do for custom resources."""
    out = copy.deepcopy(stored)
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, dict):
            out[key] = merged(out.get(key, {}), value)
        else:
            out[key] = value
    return out


def pause(**switch: bool) -> dict[str, Any]:
    return {"spec": {"runMode": {"pause": switch}}}


@pytest.mark.parametrize("kind", m.BUILDERS)
def test_every_kind_can_be_paused_and_resumed(kind: str) -> None:
    stored = admit(m.BUILDERS[kind]()).obj
    paused = admit(merged(stored, pause(enabled=True)), stored)
    assert paused.allowed
    assert paused.model is not None
    assert paused.model.model_dump()["spec"]["run_mode"]["pause"]["enabled"] is True
    assert admit(merged(paused.obj, pause(enabled=False)), paused.obj).allowed


@pytest.mark.parametrize("kind", m.BUILDERS)
def test_the_oldest_spelling_pauses_and_resumes_by_applying_again(kind: str) -> None:
    created = admit(m.BUILDERS[kind](runMode={"pause": {"enable": False}}))
    assert created.obj["spec"]["runMode"] == {"pause": {"enabled": False}}
    paused = admit(merged(created.obj, pause(enable=True)), created.obj)
    assert paused.allowed
    assert paused.obj["spec"]["runMode"] == {"pause": {"enabled": True}}
    resumed = admit(merged(paused.obj, pause(enable=False)), paused.obj)
    assert resumed.allowed
    assert resumed.obj["spec"]["runMode"] == {"pause": {"enabled": False}}


def test_the_key_in_the_request_replaces_the_stored_one_in_either_direction() -> None:
    """A server without our admission stores the spelling as it came."""
    stored = m.pytorch(runMode={"pause": {"enable": True}})
    resumed = admit(merged(stored, pause(enabled=False)), stored)
    assert resumed.allowed
    assert resumed.obj["spec"]["runMode"] == {"pause": {"enabled": False}}


def test_two_spellings_in_one_request_must_agree() -> None:
    stored = admit(m.pytorch()).obj
    verdict = admit(merged(stored, pause(enable=True, enabled=False)), stored)
    assert [p.where for p in verdict.errors] == ["spec.runMode.pause.enable"]


def test_applying_the_old_colossalai_layout_again_changes_nothing() -> None:
    old = m.colossalai_old()
    stored = admit(old).obj
    again = admit(merged(stored, {"spec": old["spec"]}), stored)
    assert again.allowed
    assert again.obj == stored


def test_the_old_colossalai_layout_cannot_change_the_job() -> None:
    old = m.colossalai_old()
    stored = admit(old).obj
    bigger = merged(stored, {"spec": m.colossalai_old(replicas=3)["spec"]})
    assert [p.where for p in admit(bigger, stored).errors] == ["spec.worker.replicas"]


def test_the_size_of_an_elastic_job_may_change_within_its_bounds() -> None:
    stored = admit(ELASTIC).obj
    for size, allowed in ((2, True), (8, True), (1, False), (9, False)):
        verdict = admit(m.changed(stored, "spec.elastic.expectedReplicas", size), stored)
        assert verdict.allowed is allowed
        assert [p.where for p in verdict.errors] == (
            [] if allowed else ["spec.elastic.expectedReplicas"]
        )


def test_open_elastic_bounds_are_fixed_at_creation() -> None:
    created = admit(m.deepspeed(elastic={"enabled": True}))
    assert created.obj["spec"]["elastic"] == {
        "enabled": True,
        "expectedReplicas": 2,
        "maxReplicas": 2,
    }
    again = admit(m.deepspeed(elastic={"enabled": True}), created.obj)
    assert again.allowed
    assert again.obj == created.obj


def test_the_maximum_fixed_at_creation_holds_for_a_file_that_leaves_it_open() -> None:
    stored = admit(m.deepspeed(elastic={"enabled": True})).obj
    verdict = admit(m.deepspeed(elastic={"enabled": True, "expectedReplicas": 3}), stored)
    assert [p.where for p in verdict.errors] == ["spec.elastic.expectedReplicas"]
    assert "maxReplicas is 2" in verdict.errors[0].message


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.bogus", 1),
        ("spec.runPolicy.backoffLimit", -1),
        ("spec.replicaSpecs.0.template.spec.containers.0.commands", ["a"]),
    ],
)
def test_a_faulty_update_is_told_its_fault_and_no_change_that_it_does_not_make(
    path: str, value: Any
) -> None:
    verdict = admit(m.changed(m.pytorch(), path, value), admit(m.pytorch()).obj)
    assert len(verdict.errors) == 1
    assert "cannot be changed" not in verdict.errors[0].message


def test_faults_and_forbidden_changes_are_reported_together() -> None:
    changed = m.changed(m.pytorch(bogus=1), "spec.replicaSpecs.0.replicas", 7)
    where = {p.where for p in admit(changed, admit(m.pytorch()).obj).errors}
    assert where == {"spec.bogus", "spec.replicaSpecs[0].replicas"}


def test_a_null_in_a_template_is_no_change() -> None:
    stored = admit(m.pytorch()).obj
    main = {**m.container(args=["train.py"]), "command": None}
    path = "spec.replicaSpecs.0.template.spec.containers.0"
    assert admit(m.changed(stored, path, main), stored).allowed


def test_a_job_that_is_not_elastic_cannot_be_scaled() -> None:
    stored = admit(m.pytorch()).obj
    verdict = admit(m.changed(stored, "spec.elastic.expectedReplicas", 3), stored)
    assert [p.where for p in verdict.errors] == ["spec.elastic.expectedReplicas"]
    assert "not elastic" in verdict.errors[0].message


CONTAINER = "spec.replicaSpecs.0.template.spec.containers.0"
FIXED: dict[str, tuple[str, Any, str]] = {
    "image": (f"{CONTAINER}.image", "b", "spec.replicaSpecs[0].template.spec.containers[0].image"),
    "replicas": ("spec.replicaSpecs.0.replicas", 5, "spec.replicaSpecs[0].replicas"),
    "minReplicas": ("spec.elastic.minReplicas", 1, "spec.elastic.minReplicas"),
    "maxReplicas": ("spec.elastic.maxReplicas", 9, "spec.elastic.maxReplicas"),
    "elastic off": ("spec.elastic.enabled", False, "spec.elastic.enabled"),
    "debug": ("spec.runMode.debug.enabled", True, "spec.runMode.debug.enabled"),
    "resumeSpecs": (
        "spec.runMode.pause.resumeSpecs",
        [{"type": "worker"}],
        "spec.runMode.pause.resumeSpecs",
    ),
    "policy": ("spec.runPolicy.backoffLimit", 9, "spec.runPolicy.backoffLimit"),
    "queue": ("spec.scheduler.t9kScheduler.queue", "q", "spec.scheduler"),
    "old spelling": ("spec.torchrunConfig.enable", False, "spec.torchrunConfig.enable"),
}


@pytest.mark.parametrize("name", FIXED)
def test_nothing_else_in_the_spec_may_change(name: str) -> None:
    path, value, where = FIXED[name]
    stored = admit(ELASTIC).obj
    verdict = admit(m.changed(stored, path, value), stored)
    assert where in [p.where for p in verdict.errors]
    assert "cannot be changed after creation" in "".join(p.message for p in verdict.errors)


def test_metadata_may_change() -> None:
    stored = admit(m.pytorch()).obj
    assert admit(m.changed(stored, "metadata.labels", {"a": "b"}), stored).allowed


def test_writing_out_a_default_is_no_change() -> None:
    stored = admit(m.pytorch()).obj
    written = m.changed(stored, "spec.replicaSpecs.0.restartPolicy", "Never")
    written = m.changed(written, "spec.runMode", {"debug": {"enabled": False}})
    written = m.changed(written, "spec.runPolicy", {"backoffLimit": 3})
    assert admit(written, stored).allowed


def test_arguments_are_left_alone() -> None:
    old = m.colossalai_old()
    kept = copy.deepcopy(old)
    stored = admit(old)
    admit(m.changed(stored.obj, "spec.runMode.pause.enable", True), stored.obj)
    assert old == kept


def test_an_invalid_stored_job_can_still_be_labelled_but_not_turned_into_another() -> None:
    stored = m.pytorch(replicaSpec=[])
    verdict = admit(m.changed(stored, "spec.replicaSpecs.0.replicas", 1), stored)
    assert "spec.replicaSpecs[0].replicas" in [p.where for p in verdict.errors]
