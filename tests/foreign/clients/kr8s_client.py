"""`kr8s`, its asynchronous API."""

from __future__ import annotations

import asyncio

import kr8s
from kr8s.asyncio.objects import ConfigMap, Pod, Service, new_class
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


async def running(name: str, command: str = "exec sleep 3600") -> Pod:
    made = await Pod(pod(name, command))
    await made.create()
    await made.wait("jsonpath='{.status.phase}'=Running", timeout=PATIENCE_SECONDS)
    return made


async def pods() -> None:
    made = await running("plain")
    assert await made.exists()
    assert [each.name async for each in Pod.list(namespace=NAMESPACE, label_selector="app=plain")]
    await made.label({"team": "blue"})
    await made.patch([{"op": "add", "path": "/metadata/labels/tier", "value": "gold"}], type="json")
    assert dict(made.labels) == {"app": "plain", "team": "blue", "tier": "gold"}
    await made.delete()
    async for kind, seen in made.async_watch():
        if kind == "DELETED":
            assert seen.name == "plain"
            break
    assert not await made.exists()


async def logs() -> None:
    made = await Pod(pod("told", "echo one; echo two"))
    await made.create()
    await made.wait("jsonpath='{.status.phase}'=Succeeded", timeout=PATIENCE_SECONDS)
    assert [line async for line in made.logs()] == ["one", "two"]
    assert [line async for line in made.logs(follow=True, tail_lines=1)] == ["two"]


async def execute() -> None:
    made = await running("busy")
    ask = ["sh", "-c", "echo word; echo bad >&2; exit 3"]  # it sends no input to any server
    done = await made.exec(ask, check=False)
    assert (done.stdout, done.stderr, done.returncode) == (b"word\n", b"bad\n", 3)


async def port_forward() -> None:
    made = await Pod(server("web"))
    await made.create()
    await made.wait("condition=Ready", timeout=PATIENCE_SECONDS)
    async with made.portforward(remote_port=PORT, local_port="auto") as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.0 200")


async def config_maps() -> None:
    made = await ConfigMap(config_map("m1", a="1"))
    await made.create()
    await made.patch({"data": {"a": None, "b": "3"}})
    assert dict((await ConfigMap.get("m1", namespace=NAMESPACE)).data) == {"b": "3"}
    await made.annotate(note="x")
    assert dict(made.annotations) == {"note": "x"}
    await made.delete()
    assert await refusal(ConfigMap.get("m1", namespace=NAMESPACE)) == "NotFoundError"


async def services() -> None:
    made = await Service(service("web-service"))
    await made.create()
    assert made.spec.clusterIP
    await made.patch({"spec": {"ports": [{"port": 80, "name": "http"}]}})
    assert [port["name"] for port in made.spec.ports] == ["http"]
    await made.delete()
    assert not await made.exists()


async def our_kinds() -> None:
    for plural, manifest in jobs().items():
        kind = new_class(
            manifest["kind"], f"{GROUP}/{VERSION}", asyncio=True, namespaced=True, plural=plural
        )
        made = await kind(manifest)
        await made.create()
        wanted = "Succeeded" if plural == "genericjobs" else "Paused"
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for _, seen in made.async_watch():
                if seen.raw.get("status", {}).get("phase") == wanted:
                    break
        await made.patch({"metadata": {"labels": {"team": "blue"}}}, type="merge")
        api = await kr8s.asyncio.api()
        found = api.async_get(plural, namespace=NAMESPACE, label_selector="team=blue")
        assert [each.name async for each in found] == ["job"]
        await made.delete()
        await made.wait("delete", timeout=PATIENCE_SECONDS)


async def refusal(call: object) -> str:
    try:
        await call  # type: ignore[misc]
    except (kr8s.NotFoundError, kr8s.ServerError) as error:
        status = getattr(error, "status", None)
        return status["reason"] if status else type(error).__name__
    raise AssertionError("it was not refused")


async def refusals() -> None:
    assert await refusal(Pod.get("none", namespace=NAMESPACE)) == "NotFoundError"
    made = await ConfigMap(config_map("twice"))
    await made.create()
    assert await refusal((await ConfigMap(config_map("twice"))).create()) == "AlreadyExists"
    wrong: Object = pod("wrong")
    wrong["spec"]["containers"][0]["name"] = "No Name"
    assert await refusal((await Pod(wrong)).create()) == "Invalid"


main(pods, logs, execute, port_forward, config_maps, services, our_kinds, refusals)
