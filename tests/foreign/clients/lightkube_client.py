"""`lightkube`, and its generic resources."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from lightkube import ApiError, Client
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Pod, Service
from lightkube.types import PatchType
from play import (
    GROUP,
    NAMESPACE,
    PATIENCE_SECONDS,
    VERSION,
    Object,
    config_map,
    jobs,
    main,
    pod,
    service,
)

CLIENT = Client(namespace=NAMESPACE, field_manager="mine")


def await_pod(name: str, phase: str) -> None:
    seen = CLIENT.watch(Pod, fields={"metadata.name": name}, server_timeout=PATIENCE_SECONDS)
    assert any(each.status.phase == phase for _, each in seen)


def pods() -> None:
    created = CLIENT.create(Pod.from_dict(pod("plain")))
    assert created.status.phase == "Pending"
    await_pod("plain", "Running")
    listed = CLIENT.list(Pod, labels={"app": "plain"})
    assert [each.metadata.name for each in listed] == ["plain"]
    CLIENT.patch(Pod, "plain", {"metadata": {"labels": {"team": "blue"}}})
    add = [{"op": "add", "path": "/metadata/labels/tier", "value": "gold"}]
    patched = CLIENT.patch(Pod, "plain", add, patch_type=PatchType.JSON)
    assert patched.metadata.labels == {"app": "plain", "team": "blue", "tier": "gold"}
    version = CLIENT.get(Pod, "plain").metadata.resourceVersion
    CLIENT.delete(Pod, "plain")
    seen = CLIENT.watch(
        Pod,
        labels={"app": "plain"},
        resource_version=version,
        server_timeout=PATIENCE_SECONDS,
    )
    assert any(kind == "DELETED" for kind, _ in seen)


def logs() -> None:
    CLIENT.create(Pod.from_dict(pod("told", "echo one; echo two")))
    await_pod("told", "Succeeded")
    assert list(CLIENT.log("told")) == ["one\n", "two\n"]
    assert list(CLIENT.log("told", tail_lines=1, follow=True)) == ["two\n"]


def execute() -> None:
    CLIENT.create(Pod.from_dict(pod("busy")))
    await_pod("busy", "Running")
    ask = ["sh", "-c", "read line; echo got $line; echo bad >&2; exit 3"]
    done = CLIENT.exec("busy", command=ask, stdin="a word\n", stdout=True, stderr=True)
    assert (done.stdout, done.stderr, done.exit_code) == ("got a word\n", "bad\n", 3)


def config_maps() -> None:
    made = [CLIENT.create(ConfigMap.from_dict(config_map(f"m{n}", a="1"))) for n in "123"]
    made[0].data["a"] = "2"
    assert CLIENT.replace(made[0]).data == {"a": "2"}
    assert refusal(CLIENT.replace, made[0]) == (409, "Conflict")
    merged = CLIENT.patch(
        ConfigMap, "m1", {"data": {"a": None, "b": "3"}}, patch_type=PatchType.MERGE
    )
    assert merged.data == {"b": "3"}
    selected = {"app": ["m1", "m2", "m3"]}
    paged = CLIENT.list(ConfigMap, labels=selected, chunk_size=1)
    assert [each.metadata.name for each in paged] == ["m1", "m2", "m3"]
    for each in ("m1", "m2", "m3"):
        CLIENT.delete(ConfigMap, each)
    assert list(CLIENT.list(ConfigMap, labels=selected)) == []


def services() -> None:
    made = CLIENT.create(Service.from_dict(service("web-service")))
    assert made.spec.clusterIP
    more = {"spec": {"ports": [{"name": "b", "port": 81}]}}
    patched = CLIENT.patch(Service, "web-service", more)
    assert {each.name for each in patched.spec.ports} == {"web", "b"}
    CLIENT.delete(Service, "web-service")
    assert refusal(CLIENT.get, Service, "web-service") == (404, "NotFound")


def apply() -> None:
    def wanted(**data: str) -> ConfigMap:
        return ConfigMap.from_dict(config_map("applied", **data))

    assert CLIENT.apply(wanted(a="1")).data == {"a": "1"}
    assert refusal(CLIENT.apply, wanted(a="2"), field_manager="theirs") == (409, "Conflict")
    CLIENT.apply(wanted(a="2"), field_manager="theirs", force=True)
    assert CLIENT.apply(wanted(b="3")).data == {"a": "2", "b": "3"}


def our_kinds() -> None:
    for plural, manifest in jobs().items():
        kind = create_namespaced_resource(GROUP, VERSION, manifest["kind"], plural)
        CLIENT.create(kind(manifest))
        wanted = "Succeeded" if plural == "genericjobs" else "Paused"
        seen = CLIENT.watch(kind, fields={"metadata.name": "job"}, server_timeout=PATIENCE_SECONDS)
        assert any((each.status or {}).get("phase") == wanted for _, each in seen)
        change = {"metadata": {"labels": {"team": "blue"}}}
        CLIENT.patch(kind, "job", change, patch_type=PatchType.MERGE)
        CLIENT.apply(kind(metadata=ObjectMeta(name="job", labels={"tier": "gold"})))
        listed = CLIENT.list(kind, labels={"team": "blue", "tier": "gold"})
        assert [each.metadata.name for each in listed] == ["job"]
        CLIENT.delete(kind, "job")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while list(CLIENT.list(kind)):
            assert time.monotonic() < deadline, f"a job is left of {plural}"
            time.sleep(0.05)


def refusal(call: Callable[..., object], *arguments: Any, **options: Any) -> tuple[int, str]:
    """The status and reason with which the server refuses a request."""
    try:
        call(*arguments, **options)
    except ApiError as error:
        return error.status.code, error.status.reason
    raise AssertionError("it was not refused")


def refusals() -> None:
    assert refusal(CLIENT.get, Pod, "none") == (404, "NotFound")
    CLIENT.create(ConfigMap.from_dict(config_map("twice")))
    assert refusal(CLIENT.create, ConfigMap.from_dict(config_map("twice"))) == (
        409,
        "AlreadyExists",
    )
    wrong: Object = pod("wrong")
    wrong["spec"]["containers"][0]["name"] = "No Name"
    assert refusal(CLIENT.create, Pod.from_dict(wrong)) == (422, "Invalid")


main(pods, logs, execute, config_maps, services, apply, our_kinds, refusals)
