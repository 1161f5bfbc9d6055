"""Tables, protobuf bodies, managed fields: how objects look on the wire."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.apiserver.patch import field_sets
from trainyard.embedded.apiserver.pod_access.spdy import DICTIONARY
from trainyard.embedded.apiserver.requests.protobuf_decoding import decode
from trainyard.embedded.apiserver.requests.representation import Representation
from trainyard.embedded.resources.resource import Served
from trainyard.kube.errors import ApiError

TABLE = Representation(kind="Table")


def container(state: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {"name": "c", "state": state, **extra}


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ({"phase": "Pending"}, "Pending"),
        (
            {
                "phase": "Pending",
                "containerStatuses": [container({"waiting": {"reason": "ContainerCreating"}})],
            },
            "ContainerCreating",
        ),
        (
            {"phase": "Running", "containerStatuses": [container({"running": {}}, ready=True)]},
            "Running",
        ),
        (
            {
                "phase": "Succeeded",
                "containerStatuses": [container({"terminated": {"reason": "Completed"}})],
            },
            "Completed",
        ),
        (
            {
                "phase": "Failed",
                "containerStatuses": [container({"terminated": {"exitCode": 137, "signal": 9}})],
            },
            "Signal:9",
        ),
        (
            {
                "phase": "Failed",
                "containerStatuses": [container({"terminated": {"reason": "OOMKilled"}})],
            },
            "OOMKilled",
        ),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        (
            {"phase": "Pending", "initContainerStatuses": [container({"running": {}})]},
            "Init:0/1",
        ),
        (
            {
                "phase": "Failed",
                "initContainerStatuses": [
                    container({"terminated": {"exitCode": 1, "reason": "Error"}})
                ],
            },
            "Init:Error",
        ),
        (
            {
                "phase": "Succeeded",
                "conditions": [{"type": "Initialized", "status": "True"}],
                "initContainerStatuses": [
                    container({"terminated": {"exitCode": 143, "reason": "Error"}})
                ],
                "containerStatuses": [container({"terminated": {"reason": "Completed"}})],
            },
            "Completed",
        ),
    ],
)
def test_the_word_for_a_pod_is_the_most_telling_one(status: dict[str, Any], word: str) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{}]}, "status": status}
    row = TABLE.table(RESOURCES["pods"], [pod], {})["rows"][0]
    assert row["cells"][2] == word
    leaving = {**pod, "metadata": {"name": "p", "deletionTimestamp": "x"}}
    assert TABLE.table(RESOURCES["pods"], [leaving], {})["rows"][0]["cells"][2] == "Terminating"


@pytest.mark.parametrize("served", [*RESOURCES], ids=lambda served: served.name)
def test_every_kind_prints_an_object_that_has_only_a_name(served: Served) -> None:
    obj = {"metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}}
    table = TABLE.table(served, [obj], {})
    assert len(table["rows"][0]["cells"]) == len(table["columnDefinitions"])
    assert "n" in table["rows"][0]["cells"]


def test_a_date_that_is_not_there_yet_is_blank() -> None:
    served = RESOURCES["pytorchtrainingjobs.batch.tensorstack.dev"]
    job = {"metadata": {"name": "j", "creationTimestamp": "2026-01-01T00:00:00Z"}}
    table = TABLE.table(served, [job], {})
    names = [column["name"] for column in table["columnDefinitions"]]
    assert table["rows"][0]["cells"][names.index("Completed")] is None


def field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2, len(data)]) + data


def body(api_version: str, kind: str, message: bytes) -> bytes:
    envelope = field(1, field(1, api_version.encode()) + field(2, kind.encode()))
    return b"k8s\0" + envelope + field(2, message)


def test_protobuf_of_a_config_map() -> None:
    metadata = field(1, b"settings") + field(3, b"") + field(11, field(1, b"a") + field(2, b"b"))
    message = field(1, metadata) + field(2, field(1, b"k") + field(2, b"v"))
    assert decode(body("v1", "ConfigMap", message), RESOURCES["configmaps"]) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "labels": {"a": "b"}},
        "data": {"k": "v"},
    }


def test_protobuf_keeps_a_grace_period_of_zero() -> None:
    assert decode(body("v1", "DeleteOptions", b"\x08\x00"))["gracePeriodSeconds"] == 0


def test_protobuf_of_another_kind_is_refused_as_a_format() -> None:
    with pytest.raises(ApiError, match="protobuf of a Node") as refused:
        decode(body("v1", "Node", b""), RESOURCES["nodes"])
    assert refused.value.code == 415


@given(st.binary(max_size=60))
def test_any_bytes_are_an_object_or_a_refusal(data: bytes) -> None:
    try:
        decode(body("v1", "Secret", data[:50]), RESOURCES["secrets"])
        decode(body("v1", "Pod", data), RESOURCES["pods"])
        decode(b"k8s\0" + data)
    except ApiError:
        return


def test_the_dictionary_of_spdy_is_the_published_one() -> None:
    import zlib

    assert zlib.adler32(DICTIONARY) == 0xE3C6A7C2
    assert DICTIONARY.startswith(struct.pack(">I", 7) + b"options")


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {"a": "b"}, "finalizers": ["x/y"]},
    "spec": {
        "containers": [{"name": "c", "image": "i", "args": ["1"]}],
        "tolerations": [{"key": "k"}],
    },
}


def test_the_fields_of_a_pod() -> None:
    fields = field_sets.applied(POD, custom=False)
    container = {".": {}, "f:name": {}, "f:image": {}, "f:args": {}}
    assert fields["f:metadata"]["f:labels"] == {"f:a": {}}
    assert fields["f:metadata"]["f:finalizers"] == {'v:"x/y"': {}}
    assert fields["f:spec"] == {
        "f:containers": {'k:{"name":"c"}': container},
        "f:tolerations": {},
    }


def test_lists_of_custom_kinds_are_owned_as_a_whole() -> None:
    fields = field_sets.applied({"spec": POD["spec"]}, custom=True)
    assert fields == {"f:spec": {"f:containers": {}, "f:tolerations": {}}}


def test_removing_an_item_removes_the_list_that_is_empty_without_it() -> None:
    obj = {"spec": {"containers": [{"name": "c"}]}, "data": {"a": 1}}
    field_sets.remove(obj, {"f:spec": {"f:containers": {'k:{"name":"c"}': {}}}}, {})
    assert obj == {"data": {"a": 1}}
