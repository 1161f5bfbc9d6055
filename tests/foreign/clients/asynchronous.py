"""`kubernetes_asyncio`, and its dynamic client."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable

from kubernetes_asyncio import client, config, dynamic, watch
from kubernetes_asyncio.stream import WsApiClient
from kubernetes_asyncio.stream.ws_client import ERROR_CHANNEL, STDERR_CHANNEL, STDOUT_CHANNEL
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


def connected(
    step: Callable[[client.CoreV1Api], Awaitable[None]],
) -> Callable[[], Awaitable[None]]:
    """The step, with a connection of its own."""

    @functools.wraps(step)
    async def play() -> None:
        await config.load_kube_config()
        async with client.ApiClient() as api:
            await step(client.CoreV1Api(api))

    return play


async def await_pod(core: client.CoreV1Api, name: str, phase: str) -> None:
    async with watch.Watch() as seen:
        async for event in seen.stream(
            core.list_namespaced_pod,
            NAMESPACE,
            field_selector=f"metadata.name={name}",
            timeout_seconds=PATIENCE_SECONDS,
        ):
            if event["object"].status.phase == phase:
                return
    raise AssertionError(f"{name} is not {phase}")


@connected
async def pods(core: client.CoreV1Api) -> None:
    created = await core.create_namespaced_pod(NAMESPACE, pod("plain"))
    assert created.status.phase == "Pending"
    await await_pod(core, "plain", "Running")
    listed = await core.list_namespaced_pod(NAMESPACE, label_selector="app=plain")
    assert [each.metadata.name for each in listed.items] == ["plain"]
    changed = {"metadata": {"labels": {"team": "blue"}}}
    patched = await core.patch_namespaced_pod("plain", NAMESPACE, changed)
    assert patched.metadata.labels == {"app": "plain", "team": "blue"}
    version = listed.metadata.resource_version
    await core.delete_namespaced_pod("plain", NAMESPACE)
    async with watch.Watch() as seen:
        async for event in seen.stream(
            core.list_namespaced_pod,
            NAMESPACE,
            resource_version=version,
            timeout_seconds=PATIENCE_SECONDS,
        ):
            if event["type"] == "DELETED":
                assert event["object"].metadata.name == "plain"
                return
    raise AssertionError("the watch has not told that it is gone")


@connected
async def logs(core: client.CoreV1Api) -> None:
    await core.create_namespaced_pod(NAMESPACE, pod("told", "echo one; echo two"))
    await await_pod(core, "told", "Succeeded")
    assert await core.read_namespaced_pod_log("told", NAMESPACE) == "one\ntwo\n"
    assert await core.read_namespaced_pod_log("told", NAMESPACE, tail_lines=1) == "two\n"


@connected
async def execute(core: client.CoreV1Api) -> None:
    await core.create_namespaced_pod(NAMESPACE, pod("busy"))
    await await_pod(core, "busy", "Running")
    ask = ["sh", "-c", "read line; echo got $line; echo bad >&2; exit 3"]
    async with WsApiClient() as sockets:
        link = await client.CoreV1Api(sockets).connect_get_namespaced_pod_exec(
            "busy",
            NAMESPACE,
            command=ask,
            stdin=True,
            stdout=True,
            stderr=True,
            tty=False,
            _preload_content=False,
        )
        told: dict[int, bytes] = {}
        async with link as socket:
            await socket.send_bytes(b"\0a word\n")
            async for message in socket:
                channel, data = message.data[0], message.data[1:]
                told[channel] = told.get(channel, b"") + data
        assert told[STDOUT_CHANNEL] == b"got a word\n"
        assert told[STDERR_CHANNEL] == b"bad\n"
        assert WsApiClient.parse_error_data(told[ERROR_CHANNEL].decode()) == 3


@connected
async def config_maps(core: client.CoreV1Api) -> None:
    for name in ("m1", "m2", "m3"):
        await core.create_namespaced_config_map(NAMESPACE, config_map(name, a="1"))
    found = await core.read_namespaced_config_map("m1", NAMESPACE)
    found.data["a"] = "2"
    await core.replace_namespaced_config_map("m1", NAMESPACE, found)
    assert await refusal(core.replace_namespaced_config_map("m1", NAMESPACE, found)) == 409
    await core.patch_namespaced_config_map("m1", NAMESPACE, {"data": {"a": None, "b": "3"}})
    assert (await core.read_namespaced_config_map("m1", NAMESPACE)).data == {"b": "3"}
    selected = {"label_selector": "app in (m1,m2,m3)"}
    first = await core.list_namespaced_config_map(NAMESPACE, limit=2, **selected)
    rest = await core.list_namespaced_config_map(
        NAMESPACE, limit=2, _continue=first.metadata._continue, **selected
    )
    names = [each.metadata.name for each in (*first.items, *rest.items)]
    assert names == ["m1", "m2", "m3"]
    await core.delete_collection_namespaced_config_map(NAMESPACE, **selected)
    assert (await core.list_namespaced_config_map(NAMESPACE, **selected)).items == []


@connected
async def services(core: client.CoreV1Api) -> None:
    made = await core.create_namespaced_service(NAMESPACE, service("web-service"))
    assert made.spec.cluster_ip
    changed = {"metadata": {"labels": {"team": "blue"}}}
    patched = await core.patch_namespaced_service("web-service", NAMESPACE, changed)
    assert patched.metadata.labels["team"] == "blue"
    await core.delete_namespaced_service("web-service", NAMESPACE)
    assert await refusal(core.read_namespaced_service("web-service", NAMESPACE)) == 404


@connected
async def apply(core: client.CoreV1Api) -> None:
    async def applied(manager: str, *, force: bool = False, **data: str) -> dict[str, str]:
        found = await core.patch_namespaced_config_map(
            "applied",
            NAMESPACE,
            config_map("applied", **data),
            field_manager=manager,
            force=force,
            _content_type="application/apply-patch+yaml",
        )
        return dict(found.data)

    assert await applied("mine", a="1") == {"a": "1"}
    assert await refusal(applied("theirs", a="2")) == 409
    assert await applied("theirs", a="2", force=True) == {"a": "2"}
    assert await applied("mine", b="3") == {"a": "2", "b": "3"}


@connected
async def our_kinds(core: client.CoreV1Api) -> None:
    known = await dynamic.DynamicClient(core.api_client)
    for plural, manifest in jobs().items():
        kind = await known.resources.get(api_version=f"{GROUP}/{VERSION}", kind=manifest["kind"])
        assert kind.name == plural
        await kind.create(manifest, namespace=NAMESPACE)
        wanted = "Succeeded" if plural == "genericjobs" else "Paused"
        phase = ""
        async for event in kind.watch(namespace=NAMESPACE, name="job", timeout=PATIENCE_SECONDS):
            phase = event["raw_object"].get("status", {}).get("phase")
            if phase == wanted:
                break
        assert phase == wanted
        changed = {"metadata": {"labels": {"team": "blue"}}}
        merge = "application/merge-patch+json"
        await kind.patch(name="job", namespace=NAMESPACE, body=changed, content_type=merge)
        listed = await kind.get(namespace=NAMESPACE, label_selector="team=blue")
        assert [each.metadata.name for each in listed.items] == ["job"]
        await kind.delete(name="job", namespace=NAMESPACE)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await kind.get(namespace=NAMESPACE)).items:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def refusal(call: Awaitable[object]) -> int:
    """The status with which the server refuses a request."""
    try:
        await call
    except client.ApiException as error:
        return int(error.status)
    raise AssertionError("it was not refused")


@connected
async def refusals(core: client.CoreV1Api) -> None:
    assert await refusal(core.read_namespaced_pod("none", NAMESPACE)) == 404
    await core.create_namespaced_config_map(NAMESPACE, config_map("twice"))
    assert await refusal(core.create_namespaced_config_map(NAMESPACE, config_map("twice"))) == 409
    wrong: Object = pod("wrong")
    wrong["spec"]["containers"][0]["name"] = "No Name"
    assert await refusal(core.create_namespaced_pod(NAMESPACE, wrong)) == 422


main(pods, logs, execute, config_maps, services, apply, our_kinds, refusals)
