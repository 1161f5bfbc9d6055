"""Events under load, against the modelled API server in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

from tests.simulation.cluster import WallClock
from tests.simulation.network import Call, Conditions, Fault, Sent, Wire
from tests.simulation.server import ModelServer, Obj
from tests.simulation.virtual_time import run
from trainyard.kinds.kind_registry import JOB_KINDS
from trainyard.kube.client import Client
from trainyard.lifecycle.actions import Event
from trainyard.operator.metrics.instrumentation import Instrumentation
from trainyard.operator.reconcile.event_recorder import EventRecorder
from trainyard.operator.reconcile.job_records import JobRecord

KIND = JOB_KINDS["GenericJob"]
REASONS = ("Created", "NewReplica", "Start", "Running", "Succeeded")


class Desk:
    """A recorder, and the server that it sends to."""

    def __init__(self) -> None:
        clock = WallClock(asyncio.get_running_loop())
        self.server = ModelServer(clock, random.Random(1))
        self.fault: Callable[[Call], Fault] = lambda call: Fault.NONE
        conditions = Conditions(lambda call: self.fault(call), lambda key: None)
        wire = Wire(self.server, conditions, random.Random(2), 1, bool, _ignore, lambda *_: None)
        self.client = Client(wire, max_retries=0)
        self.recorder = EventRecorder(self.client, clock, Instrumentation())

    def job(self, number: int) -> JobRecord:
        metadata = {"name": f"job-{number}", "namespace": "default", "uid": f"uid-{number}"}
        return JobRecord.decode(KIND, {"metadata": {**metadata, "resourceVersion": "1"}})

    @property
    def stored(self) -> list[Obj]:
        return self.server.all("events")


def _ignore(sent: Sent) -> None:
    pass


def test_a_burst_of_many_jobs_loses_no_event_and_keeps_each_jobs_order() -> None:
    async def main() -> None:
        desk, jobs = Desk(), 2_100
        for number in range(jobs):
            events = [Event("Normal", reason, f"of {number}") for reason in REASONS]
            desk.recorder.emit(desk.job(number), events)
        assert desk.recorder.waiting == jobs * len(REASONS)
        await desk.recorder.flush()
        # Of virtual time; one by one they would take most of a minute.
        assert asyncio.get_running_loop().time() < 15
        reasons: dict[str, list[str]] = {}
        for event in sorted(desk.stored, key=lambda e: int(e["metadata"]["resourceVersion"])):
            reasons.setdefault(event["involvedObject"]["name"], []).append(event["reason"])
        assert len(reasons) == jobs
        assert set(map(tuple, reasons.values())) == {REASONS}
        assert (desk.recorder.lost, desk.recorder.waiting) == (0, 0)

    run(main())


def test_an_event_is_sent_again_after_what_passes_and_given_up_after_what_does_not() -> None:
    async def main() -> None:
        desk, asked = Desk(), Counter[str]()

        def fate(call: Call) -> Fault:
            asked[call.body["reason"]] += 1
            if call.body["reason"] == "Refused":
                return Fault.REFUSED
            faults = (Fault.THROTTLED, Fault.LOST_RESPONSE, Fault.SERVER_ERROR)
            return faults[asked["Busy"] - 1] if asked["Busy"] <= len(faults) else Fault.NONE

        desk.fault = fate
        for number, reason in enumerate(("Busy", "Refused")):
            desk.recorder.emit(desk.job(number), [Event("Normal", reason, "x")])
        await desk.recorder.flush()
        assert asked == {"Busy": 4, "Refused": 1}
        assert [event["reason"] for event in desk.stored] == ["Busy"]
        assert desk.recorder.lost == 1

    run(main())


def test_what_one_job_tells_while_nobody_listens_is_combined() -> None:
    async def main() -> None:
        desk = Desk()
        desk.recorder.emit(desk.job(1), [Event("Normal", "Created", "x")])
        for number in range(1_000):
            desk.recorder.emit(desk.job(1), [Event("Warning", "Restart", f"attempt {number}")])
        assert desk.recorder.waiting < 40
        await desk.recorder.flush()
        assert sum(event["count"] for event in desk.stored) == 1_001
        last = max(desk.stored, key=lambda e: int(e["metadata"]["resourceVersion"]))
        assert last["message"] == "(combined from similar events): attempt 999"

    run(main())


def test_events_give_way_to_requests_of_passes_for_two_seconds() -> None:
    async def main() -> None:
        waits: list[float] = []

        async def busy(seconds: float) -> None:
            waits.append(seconds)
            await asyncio.sleep(seconds)

        desk = Desk()
        recorder = EventRecorder(desk.client, lambda: datetime.now(UTC), Instrumentation(), busy)
        task = asyncio.create_task(recorder.run())
        for number in range(100):
            recorder.emit(desk.job(number), [Event("Normal", "Created", "x")])
        await asyncio.sleep(1.9)
        assert not desk.stored
        await asyncio.sleep(1.0)  # none waits for its own two seconds behind another's
        assert len(desk.stored) == 100
        assert max(waits) == 2.0
        task.cancel()

    run(main())
