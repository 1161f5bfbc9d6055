"""The official Python client, `kubernetes`, and its dynamic one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kubernetes import client, config, dynamic, stream, watch
from play import (
    GROUP,
    NAMESPACE,
    PATIENCE_SECONDS,
    PORT,
    VERSION,
    Object,
    config_map,
    jobs,
    main,
    pod,
    server,
    service,
)

config.load_kube_config()
API = client.ApiClient()
CORE = client.CoreV1Api(API)


def is_in(phase: str) -> Callable[[Any], bool]:
    return lambda status: status.phase == phase


def ready(status: Any) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in status.conditions or ())


def await_pod(name: str, holds: Callable[[Any], bool]) -> None:
    seen = watch.Watch()
    for event in seen.stream(
        CORE.list_namespaced_pod,
        NAMESPACE,
        field_selector=f"metadata.name={name}",
        timeout_seconds=PATIENCE_SECONDS,
    ):
        if holds(event["object"].status):
            seen.stop()
            return
    raise AssertionError(f"{name} is not what it was to be")


def pods() -> None:
    created = CORE.create_namespaced_pod(NAMESPACE, pod("plain"))
    assert created.status.phase == "Pending"
    await_pod("plain", is_in("Running"))
    assert CORE.read_namespaced_pod("plain", NAMESPACE).spec.containers[0].image == "python"
    listed = CORE.list_namespaced_pod(NAMESPACE, label_selector="app=plain")
    assert [each.metadata.name for each in listed.items] == ["plain"]
    CORE.patch_namespaced_pod("plain", NAMESPACE, {"metadata": {"labels": {"team": "blue"}}})
    CORE.patch_namespaced_pod(
        "plain", NAMESPACE, [{"op": "add", "path": "/metadata/labels/tier", "value": "gold"}]
    )
    labels = CORE.read_namespaced_pod_status("plain", NAMESPACE).metadata.labels
    assert labels == {"app": "plain", "team": "blue", "tier": "gold"}
    version = CORE.list_namespaced_pod(NAMESPACE).metadata.resource_version
    CORE.delete_namespaced_pod("plain", NAMESPACE)
    seen = watch.Watch()
    for event in seen.stream(
        CORE.list_namespaced_pod,
        NAMESPACE,
        resource_version=version,
        timeout_seconds=PATIENCE_SECONDS,
    ):
        if event["type"] == "DELETED":
            assert event["object"].metadata.name == "plain"
            seen.stop()
            return
    raise AssertionError("the watch has not told that it is gone")


def logs() -> None:
    CORE.create_namespaced_pod(NAMESPACE, pod("told", "echo one; echo two"))
    await_pod("told", is_in("Succeeded"))
    assert CORE.read_namespaced_pod_log("told", NAMESPACE) == "one\ntwo\n"
    assert CORE.read_namespaced_pod_log("told", NAMESPACE, tail_lines=1) == "two\n"
    followed = watch.Watch().stream(CORE.read_namespaced_pod_log, "told", NAMESPACE)
    assert list(followed) == ["one", "two"]


def execute() -> None:
    CORE.create_namespaced_pod(NAMESPACE, pod("busy"))
    await_pod("busy", is_in("Running"))
    ask = ["sh", "-c", "read line; echo got $line; echo bad >&2; exit 3"]
    open_ = stream.stream(
        CORE.connect_get_namespaced_pod_exec,
        "busy",
        NAMESPACE,
        command=ask,
        stdin=True,
        stdout=True,
        stderr=True,
        tty=False,
        _preload_content=False,
    )
    open_.write_stdin("a word\n")
    open_.run_forever(timeout=PATIENCE_SECONDS)
    assert (open_.read_stdout(), open_.read_stderr()) == ("got a word\n", "bad\n")
    assert open_.returncode == 3
    said = stream.stream(
        CORE.connect_get_namespaced_pod_exec,
        "busy",
        NAMESPACE,
        command=["echo", "x"],
        stdout=True,
        stderr=True,
        stdin=False,
        tty=False,
    )
    assert said == "x\n"


def port_forward() -> None:
    CORE.create_namespaced_pod(NAMESPACE, server("web"))
    await_pod("web", ready)
    forward = stream.portforward(
        CORE.connect_get_namespaced_pod_portforward, "web", NAMESPACE, ports=str(PORT)
    )
    link = forward.socket(PORT)
    link.setblocking(True)
    link.sendall(b"GET / HTTP/1.0\r\n\r\n")
    answer = b"".join(iter(lambda: link.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.0 200"), (answer, forward.error(PORT))


def refusal(call: Callable[..., object], *arguments: Any, **options: Any) -> int:
    """The status with which the server refuses a request."""
    try:
        call(*arguments, **options)
    except client.ApiException as error:
        return int(error.status)
    raise AssertionError("it was not refused")


def config_maps() -> None:
    made = [CORE.create_namespaced_config_map(NAMESPACE, config_map(f"m{n}", a="1")) for n in "123"]
    made[0].data["a"] = "2"
    replaced = CORE.replace_namespaced_config_map("m1", NAMESPACE, made[0])
    assert replaced.metadata.resource_version > made[0].metadata.resource_version
    assert refusal(CORE.replace_namespaced_config_map, "m1", NAMESPACE, made[0]) == 409
    CORE.patch_namespaced_config_map("m1", NAMESPACE, {"data": {"a": None, "b": "3"}})
    assert CORE.read_namespaced_config_map("m1", NAMESPACE).data == {"b": "3"}
    selected = {"label_selector": "app in (m1,m2,m3)"}
    names, page = [], None
    while page is None or page.metadata._continue:
        page = CORE.list_namespaced_config_map(
            NAMESPACE, limit=1, _continue=page and page.metadata._continue, **selected
        )
        names += [each.metadata.name for each in page.items]
    assert names == ["m1", "m2", "m3"]
    CORE.delete_collection_namespaced_config_map(NAMESPACE, **selected)
    assert CORE.list_namespaced_config_map(NAMESPACE, **selected).items == []


def services() -> None:
    made = CORE.create_namespaced_service(NAMESPACE, service("web-service"))
    assert made.spec.cluster_ip
    assert made.spec.ports[0].protocol == "TCP"
    changed = {"spec": {"ports": [{"port": 80, "name": "http", "targetPort": PORT}]}}
    patched = CORE.patch_namespaced_service("web-service", NAMESPACE, changed)
    assert [(each.name, each.port) for each in patched.spec.ports] == [("http", 80)]
    CORE.delete_namespaced_service("web-service", NAMESPACE)
    assert refusal(CORE.read_namespaced_service, "web-service", NAMESPACE) == 404


def apply() -> None:
    found = dynamic.DynamicClient(API).resources.get(api_version="v1", kind="ConfigMap")
    mine = {"namespace": NAMESPACE, "name": "applied", "field_manager": "mine"}
    applied = found.server_side_apply(config_map("applied", a="1"), **mine)
    assert applied.data.to_dict() == {"a": "1"}
    theirs = mine | {"field_manager": "theirs"}
    assert refusal(found.server_side_apply, config_map("applied", a="2"), **theirs) == 409
    found.server_side_apply(config_map("applied", a="2"), **theirs, force_conflicts=True)
    found.server_side_apply(config_map("applied", b="3"), **mine)
    assert found.get(name="applied", namespace=NAMESPACE).data.to_dict() == {"a": "2", "b": "3"}


def our_kinds() -> None:
    known = dynamic.DynamicClient(API)
    for plural, manifest in jobs().items():
        kind = known.resources.get(api_version=f"{GROUP}/{VERSION}", kind=manifest["kind"])
        assert kind.name == plural
        kind.create(manifest, namespace=NAMESPACE)
        wanted = "Succeeded" if plural == "genericjobs" else "Paused"
        seen = kind.watch(namespace=NAMESPACE, name="job", timeout=PATIENCE_SECONDS)
        assert any(event["raw_object"].get("status", {}).get("phase") == wanted for event in seen)
        kind.patch(
            name="job",
            namespace=NAMESPACE,
            body={"metadata": {"labels": {"team": "blue"}}},
            content_type="application/merge-patch+json",
        )
        owned = {"apiVersion": f"{GROUP}/{VERSION}", "kind": manifest["kind"]}
        owned["metadata"] = {"name": "job", "labels": {"tier": "gold"}}
        kind.server_side_apply(owned, name="job", namespace=NAMESPACE, field_manager="mine")
        listed = kind.get(namespace=NAMESPACE, label_selector="team=blue,tier=gold")
        assert [each.metadata.name for each in listed.items] == ["job"]
        kind.delete(name="job", namespace=NAMESPACE)
        await_gone(plural)


def await_gone(plural: str) -> None:
    custom = client.CustomObjectsApi(API)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if not custom.list_namespaced_custom_object(GROUP, VERSION, NAMESPACE, plural)["items"]:
            return
        time.sleep(0.05)
    raise AssertionError(f"a job is left of {plural}")


def refusals() -> None:
    assert refusal(CORE.read_namespaced_pod, "none", NAMESPACE) == 404
    CORE.create_namespaced_config_map(NAMESPACE, config_map("twice"))
    assert refusal(CORE.create_namespaced_config_map, NAMESPACE, config_map("twice")) == 409
    wrong: Object = pod("wrong")
    wrong["spec"]["containers"][0]["name"] = "No Name"
    assert refusal(CORE.create_namespaced_pod, NAMESPACE, wrong) == 422


main(pods, logs, execute, port_forward, config_maps, services, apply, our_kinds, refusals)
