"""`kopf`: an operator with handlers, events and a finalizer, of what another client makes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import kopf
from kubernetes_asyncio import client, config
from play import GROUP, NAMESPACE, PATIENCE_SECONDS, VERSION, Object, config_map, jobs, main

TOLD: list[tuple[str, str]] = []
MARK = "example.com/seen"


@kopf.on.create("configmaps")
@kopf.on.create(GROUP, VERSION, kopf.EVERYTHING)
async def created(body: kopf.Body, name: str, patch: kopf.Patch, **_: Any) -> None:
    kopf.event(body, type="Normal", reason="Seen", message=f"{name} was seen")
    patch.metadata.annotations[MARK] = "yes"


@kopf.on.update("configmaps", field="data")
async def changed(name: str, old: Object, new: Object, **_: Any) -> None:
    TOLD.append((name, f"{old['a']} became {new['a']}"))


@kopf.on.field(GROUP, VERSION, "genericjobs", field="status.phase")
async def reached(name: str, new: str, **_: Any) -> None:
    TOLD.append((name, new))


@kopf.on.delete("configmaps")
@kopf.on.delete(GROUP, VERSION, kopf.EVERYTHING)
async def deleted(name: str, **_: Any) -> None:
    TOLD.append((name, "deleted"))


@asynccontextmanager
async def operating() -> AsyncIterator[client.ApiClient]:
    """An operator of this namespace for the block, and a client of one's own."""
    await config.load_kube_config()
    stop, ready = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(
        kopf.operator(standalone=True, namespaces=[NAMESPACE], stop_flag=stop, ready_flag=ready)
    )
    await asyncio.wait_for(ready.wait(), PATIENCE_SECONDS)
    try:
        async with client.ApiClient() as api:
            yield api
    finally:
        stop.set()
        await asyncio.wait_for(running, PATIENCE_SECONDS)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await holds():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def operator() -> None:
    async with operating() as api:
        core = client.CoreV1Api(api)

        async def names() -> list[str]:
            found = await core.list_namespaced_config_map(NAMESPACE, label_selector="app=kept")
            return [each.metadata.name for each in found.items]

        async def is_held() -> bool:
            found = await core.read_namespaced_config_map("kept", NAMESPACE)
            return bool(found.metadata.finalizers) and MARK in (found.metadata.annotations or {})

        async def is_told(what: str) -> bool:
            return ("kept", what) in TOLD

        async def has_event() -> bool:
            found = await core.list_namespaced_event(NAMESPACE)
            return ("kept", "Seen") in [(e.involved_object.name, e.reason) for e in found.items]

        await core.create_namespaced_config_map(NAMESPACE, config_map("kept", a="1"))
        await until(is_held)
        await until(has_event)
        await core.patch_namespaced_config_map("kept", NAMESPACE, {"data": {"a": "2"}})
        await until(lambda: is_told("1 became 2"))
        await core.delete_namespaced_config_map("kept", NAMESPACE)
        await until(lambda: is_told("deleted"))

        async def is_gone() -> bool:
            return not await names()

        await until(is_gone)


async def our_kinds() -> None:
    async with operating() as api:
        custom = client.CustomObjectsApi(api)
        for plural, manifest in jobs().items():
            at = (GROUP, VERSION, NAMESPACE, plural)
            TOLD.clear()

            async def marked(at: tuple[str, ...] = at) -> bool:
                found = await custom.get_namespaced_custom_object(*at, "job")
                return MARK in found["metadata"].get("annotations", {})

            async def has_succeeded() -> bool:
                return ("job", "Succeeded") in TOLD

            async def is_gone(at: tuple[str, ...] = at) -> bool:
                found = await custom.list_namespaced_custom_object(*at)
                return not found["items"]

            await custom.create_namespaced_custom_object(*at, manifest)
            await until(marked)
            if plural == "genericjobs":
                await until(has_succeeded)
            await custom.delete_namespaced_custom_object(*at, "job")
            await until(is_gone)
            assert ("job", "deleted") in TOLD


main(operator, our_kinds)
