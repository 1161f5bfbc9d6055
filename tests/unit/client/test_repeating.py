"""A recorded job once more, and what differs between two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.client.objects import found, job
from trainyard.cli.commands.rerun import parse_set
from trainyard.client.cluster_target import CommandError
from trainyard.client.job_comparison import compare, fields
from trainyard.client.provenance_lookup import Past
from trainyard.client.rerun_manifest import (
    new_name,
    objects_of,
    package_changes,
    packages_text,
    parse_path,
    put,
)
from trainyard.client.submission_records import Record
from trainyard.kinds.shared import labels


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("spec.replicaSpecs[0].replicas=4", "spec.replicaSpecs[0].replicas", 4),
        ("spec.elastic.enabled=true", "spec.elastic.enabled", True),
        ("spec.a='4'", "spec.a", "4"),
        ("spec.a=x=y", "spec.a", "x=y"),
        ("spec.a=[1, b]", "spec.a", [1, "b"]),
    ],
)
def test_a_change_is_a_path_and_a_value_as_yaml(text: str, path: str, value: object) -> None:
    assert parse_set(text) == (path, value)


@pytest.mark.parametrize("text", ["", "spec", "=4", "spec..a=1", "spec[a]=1", ".spec=1", "a={"])
def test_what_is_no_change_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="--set"):
        parse_set(text)


def test_a_path_leads_through_keys_and_entries() -> None:
    keys = ("spec", "replicaSpecs", 0, "replicas")
    assert parse_path("spec.replicaSpecs[0].replicas") == keys


def test_a_change_makes_the_mappings_that_lead_to_it() -> None:
    obj: dict[str, Any] = {"spec": {"list": [{"a": 1}]}}
    put(obj, ("spec", "runPolicy", "backoffLimit"), 2)
    put(obj, ("spec", "list", 1, "a"), 3)
    put(obj, ("spec", "list", 0), {"b": 1})
    assert obj == {"spec": {"list": [{"b": 1}, {"a": 3}], "runPolicy": {"backoffLimit": 2}}}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (("spec", "list", 3, "a"), r"spec.list\[3\]: there is no such entry: it has 1 entries"),
        (("spec", "list", "a"), "spec.list is no mapping"),
        (("spec", "text", 0), "it has no list"),
    ],
)
def test_a_change_where_nothing_is_says_so(path: Any, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        put({"spec": {"list": [{}], "text": "a"}}, path, 1)


def test_the_new_name_has_the_next_number() -> None:
    assert new_name("train", {"train"}) == "train-2"
    assert new_name("train-2", {"train", "train-2"}) == "train-3"
    assert new_name("resnet-50", {"resnet-50"}) == "resnet-50-2"
    assert len(new_name("a" * 60, set())) <= 42


def recorded(tmp_path: Path, left_out: list[str]) -> Past:
    container = {"name": "main", "env": [{"name": "HF_TOKEN", "value": "***"}], "args": ["***"]}
    template = {"spec": {"containers": [container]}}
    obj = job(spec={"replicaSpecs": [{"type": "worker", "template": template}]})
    record = {"objects": [{"kind": "ConfigMap", "metadata": {"name": "c"}}, obj]}
    return Past(found(obj), Record(tmp_path, {**record, "leftOut": left_out}), is_there=False)


def test_what_was_not_recorded_comes_from_the_shell_or_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = "spec.replicaSpecs[0].template.spec.containers[0]"
    name = found(job()).name
    kind = found(job()).kind.kind
    past = recorded(
        tmp_path, [f"{kind} {name}.{place}.env[0].value", f"{kind} {name}.{place}.args[0]"]
    )
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(CommandError, match=r"env\[0\]\.value \(HF_TOKEN\), .*args\[0\] of"):
        objects_of(past, "again", {})
    monkeypatch.setenv("HF_TOKEN", "abc")
    config, again = objects_of(past, "again", {f"{place}.args": ["x"]})
    container = again["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    assert container["env"][0]["value"] == "abc"
    assert container["args"] == ["x"]
    assert again["metadata"]["name"] == "again"
    assert config["kind"] == "ConfigMap"


def test_what_goes_with_a_job_is_had_again_for_the_new_one(tmp_path: Path) -> None:
    """Its Secret with what that holds, where it is there; what is not of the job stays."""
    annotations = {labels.SCRIPT_OF: "digits", labels.VALUES_FROM_SHELL: "WORD"}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "digits-env", "annotations": annotations},
    }
    other = {"kind": "ConfigMap", "metadata": {"name": "digits-script"}}
    env = [{"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "digits-env", "key": "WORD"}}}]
    volumes = [{"name": "v", "configMap": {"name": "digits-script"}}]
    template = {"spec": {"containers": [{"name": "main", "env": env}], "volumes": volumes}}
    obj = job(name="digits", spec={"replicaSpecs": [{"type": "worker", "template": template}]})
    record = Record(tmp_path, {"objects": [secret, other, obj]})
    data = {"data": {"WORD": "aHVudGVyMg=="}}
    there = objects_of(Past(found(obj), None, is_there=True), "digits-2", {}, [secret | data])
    assert there[0]["data"] == data["data"]
    gone = objects_of(Past(found(obj), record, is_there=False), "digits-2", {})
    assert gone.pop(1) == other
    assert "data" not in gone[0]
    for again, new in (there, gone):
        assert again["metadata"]["name"] == "digits-2-env"
        assert again["metadata"]["annotations"][labels.SCRIPT_OF] == "digits-2"
        spec = new["spec"]["replicaSpecs"][0]["template"]["spec"]
        source = {"secretKeyRef": {"name": "digits-2-env", "key": "WORD"}}
        assert spec["containers"][0]["env"][0]["valueFrom"] == source
        assert spec["volumes"] == volumes
        assert secret["metadata"]["name"] == "digits-env"
        past = Past(found({**new, "status": {}}), Record(tmp_path, {"objects": [again, new]}), True)
        assert compare(Past(found(obj), record, is_there=True), past).spec == []


def test_packages_are_compared_by_name() -> None:
    old, new = ("a==1", "b==1", "c==1"), ("a==1", "b==2", "d==1")
    assert package_changes(old, new) == {"b": ("1", "2"), "c": ("1", ""), "d": ("", "1")}
    assert packages_text(old, new, most=2) == "b 1 → 2, c removed and 1 more"
    assert packages_text(old, old) == ""


def test_fields_differ_as_deep_as_they_do() -> None:
    a = {"x": [1, {"y": 2}], "only": True, "same": {"z": 1}}
    b = {"x": [1, {"y": 3}, 4], "same": {"z": 1}}
    assert list(fields(a, b)) == [
        (("x", 1, "y"), 2, 3),
        (("x", 2), None, 4),
        (("only",), True, None),
    ]
