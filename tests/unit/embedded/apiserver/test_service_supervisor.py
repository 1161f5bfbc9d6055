"""A loop goes on beside what it fails on; a service that fails is started again."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from trainyard.composition.kinds_extension import EXTENSION, RESOURCES
from trainyard.embedded import service_supervisor as module
from trainyard.embedded.registry import Registry
from trainyard.embedded.scheduler.machine_capacity import Capacity
from trainyard.embedded.scheduler.scheduler import Scheduler, SchedulerSettings
from trainyard.embedded.service_supervisor import FatalError, RetryGuard, Supervisor, event_batches
from trainyard.embedded.storage.journal import Subscription

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "default"}}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_SECONDS", 0.01)


async def test_a_step_that_fails_is_told_once_and_handed_out_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reported: list[Any] = []
    supervisor = Supervisor(lambda obj, reason, message: reported.append((obj, reason, message)))
    guard: RetryGuard[str] = RetryGuard("loop", supervisor)
    subscription = Subscription()
    done: list[str] = []
    with caplog.at_level(logging.WARNING):
        with guard.step(POD, "again"):
            raise KeyError("spec")
        async for events in event_batches(subscription, guard):
            assert events == []
            for work in guard.due_retries():
                with guard.step(POD, work):
                    done.append(work)
                    if len(done) < 4:
                        raise KeyError("spec")
            if len(done) == 4:
                break
    assert list(supervisor) == []
    assert [(reason, message) for _, reason, message in reported] == [
        ("ClusterFault", "loop: KeyError: 'spec'; it is tried again")
    ]
    assert [r.levelname for r in caplog.records] == ["ERROR", "WARNING", "WARNING"]
    assert "Pod default/x" in caplog.records[0].getMessage()


async def test_what_fails_is_listed_while_it_lasts() -> None:
    supervisor = Supervisor()
    guard: RetryGuard[None] = RetryGuard("loop", supervisor)
    with guard.step(POD, None):
        raise ValueError("bad")
    (found,) = supervisor
    assert found.as_json()["problem"] == "ValueError: bad"
    with guard.step(POD, None):
        pass
    assert list(supervisor) == []


async def test_a_service_that_fails_is_started_again_and_named() -> None:
    supervisor, lives = Supervisor(), []

    async def service() -> None:
        lives.append(len(list(supervisor)))
        if len(lives) < 3:
            raise ExceptionGroup("unhandled", [RuntimeError("a defect")])

    await supervisor.keep_running("scheduler", service)
    assert lives == [0, 1, 1]
    (found,) = supervisor
    assert (found.about.name, found.problem) == ("scheduler", "RuntimeError: a defect")


async def test_what_is_fatal_ends_a_service_for_good() -> None:
    async def service() -> None:
        raise ExceptionGroup(
            "unhandled", [ExceptionGroup("inner", [FatalError("the shim is gone")])]
        )

    with pytest.raises(FatalError, match="the shim is gone"):
        await Supervisor().keep_running("node agent", service)


async def test_a_pod_that_the_scheduler_cannot_read_keeps_no_other_waiting() -> None:
    registry, supervisor = Registry(resources=RESOURCES), Supervisor()
    await registry.ensure_system_objects()
    settings = SchedulerSettings(
        "node", Capacity({"cpu": 4000, "memory": 1 << 30, "pods": 9}), extension=EXTENSION
    )
    scheduler = asyncio.ensure_future(Scheduler(registry, settings, supervisor).run())
    for name, cpu in (("bad", "lots"), ("good", "1")):
        container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
        pod = {"metadata": {"name": name}, "spec": {"containers": [container]}}
        await registry.create("pods", pod)
    async with asyncio.timeout(120):
        async for event in registry.subscribe("pods"):
            if event.object["spec"].get("nodeName"):
                break
    assert not scheduler.done()
    assert {finding.about.name for finding in supervisor} == {"bad"}
    await registry.close()
    scheduler.cancel()
