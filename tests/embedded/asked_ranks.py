"""Ranks that note when they are asked to end (SIGTERM), and jobs of every form that launch them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable
from datetime import datetime
from typing import Any, NamedTuple

from tests.embedded.deepspeed_job import spec as deepspeed_spec
from tests.embedded.launching import NAMESPACE, PATIENCE_SECONDS, Jobs, Object, resource_of

POLL_SECONDS = 0.05
GRACE_SECONDS = 90
"""Of the pods: whoever waits for its end is found out by the time that the test takes."""
RANK = """\
import os, signal, socket, sys, time
def note(word):
    with open("notes-" + sys.argv[-1], "a") as notes:
        notes.write(f"{word} {time.time()} {socket.gethostname()} {os.getpid()}\\n")
asked = []
def ask(*_):
    asked.append(1)
    note("asked")
signal.signal(signal.SIGTERM, ask)
if "helper" in sys.argv and not os.fork():
    time.sleep(3600)
note("started")
while not asked:
    time.sleep(0.01)
time.sleep(float(os.environ["SAVING"]) * (1 + int(os.environ.get("RANK", 0))))
print("saved", flush=True)
note("saved")
sys.exit(9)
"""
"""Takes SAVING seconds, and longer the higher its rank; its last argument names the job."""


class Note(NamedTuple):
    """One line that a rank noted."""

    word: str
    time: float
    host: str
    pid: int


class Form(NamedTuple):
    """A way to launch."""

    kind: str
    spec: Object
    ranks: int
    """All of them."""


def template(*command: str, saving: float = 0.3, as_args: bool = False, **spec: Any) -> Object:
    """A pod template with one container."""
    container: Object = {"name": "worker", "image": "image"}
    container["env"] = [{"name": "SAVING", "value": str(saving)}]
    if command:
        container["args" if as_args else "command"] = [*command]
    return {
        "spec": {"containers": [container], "terminationGracePeriodSeconds": GRACE_SECONDS, **spec}
    }


def pytorch(name: str, workers: int, *, torchrun: bool, elastic: bool = False) -> Form:
    """Plain, under torchrun, and under elastic torchrun."""
    command = ["rank.py", name] if torchrun else ["python3", "rank.py", name]
    pods = template(*command, as_args=torchrun)
    given = {"type": "worker", "replicas": workers, "restartPolicy": "Never", "template": pods}
    spec: Object = {"replicaSpecs": [given]}
    if torchrun:
        spec["torchrunConfig"] = {"enabled": True, "procPerNode": "2"}
    if elastic:
        spec["elastic"] = elasticity(workers)
    return Form("PyTorchTrainingJob", spec, workers * (2 if torchrun else 1))


def elasticity(workers: int) -> Object:
    """One worker may go; a single one may become two."""
    return {
        "enabled": True,
        "minReplicas": max(workers - 1, 1),
        "maxReplicas": max(workers, 2),
        "expectedReplicas": workers,
    }


def limited(form: Form, seconds: int) -> Form:
    """With a deadline."""
    policy = {"activeDeadlineSeconds": seconds, "cleanUpPolicy": "All"}
    return form._replace(spec={**form.spec, "runPolicy": policy})


def deepspeed(
    name: str, workers: int, *, command: str = "", elastic: bool = False, ranks_each: int = 2
) -> Form:
    """Generated, by the user's own command, and elastic."""
    run = None if command else {"python": ["rank.py", "helper", name]}
    config = {"customCommand": command} if command else {}
    changes = {"elastic": elasticity(workers)} if elastic else {}
    spec = deepspeed_spec(
        run, replicas=workers, slots=2, template=template(), config=config, **changes
    )
    return Form("DeepSpeedJob", spec, workers * ranks_each)


def colossalai(name: str, workers: int) -> Form:
    """Generated."""
    return Form(
        "ColossalAIJob",
        {
            "torchConfig": {"script": ["rank.py", name], "procPerWorker": 2},
            "replicaSpecs": [
                {"type": "launcher", "template": template()},
                {"type": "worker", "replicas": workers, "template": template()},
            ],
        },
        workers * 2,
    )


def generic(name: str, workers: int, *command: str) -> Form:
    """Whatever is run."""
    given = {"type": "worker", "replicas": workers, "template": template(*command)}
    return Form("GenericJob", {"replicaSpecs": [given]}, workers)


class Ending(NamedTuple):
    """What became of a job's ranks, in seconds."""

    asked: float
    """From the wish until the last rank was asked."""
    gone: float | None
    """From the end of the last rank until the last pod had gone; None: no pod was to go."""

    def __str__(self) -> str:
        pods = "" if self.gone is None else f", pods gone {self.gone:.2f} s after the ranks"
        return f"asked within {self.asked:.2f} s{pods}"


class Asked:
    """Launches jobs, ends them, and judges how their ranks were asked."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        jobs.script("rank.py", RANK)

    def notes(self, name: str) -> list[Note]:
        """What its ranks have noted."""
        path = self.jobs.folder / f"notes-{name}"
        lines = path.read_text().splitlines() if path.exists() else []
        parts = (line.split() for line in lines)
        return [Note(word, float(at), host, int(pid)) for word, at, host, pid in parts]

    async def until_noted(self, form: Form, name: str, word: str, count: int) -> None:
        """Wait for so many notes of this word."""
        await self.jobs.until(
            form.kind, name, lambda _: sum(n.word == word for n in self.notes(name)) >= count
        )

    async def launch(self, form: Form, name: str) -> None:
        """Create the job, and wait until it trains."""
        await self.jobs.submit(form.kind, name, form.spec)
        await self.until_noted(form, name, "started", form.ranks)

    async def change(self, form: Form, name: str, spec: Object) -> None:
        """Change the job's spec."""
        await self.jobs.client.patch(resource_of(form.kind), name, {"spec": spec}, NAMESPACE)

    async def pause(self, form: Form, name: str) -> Ending:
        """Pause the job, and judge what follows."""
        paused = {"runMode": {"pause": {"enabled": True}}}
        return await self.judged(name, self.change(form, name, paused))

    async def delete(self, form: Form, name: str) -> Ending:
        """Delete the job, and judge what follows."""
        wish = self.jobs.client.delete(resource_of(form.kind), name, NAMESPACE)
        return await self.judged(name, wish)

    async def forget(self, form: Form, name: str) -> None:
        """Delete the job, without a judgement."""
        await self.jobs.client.delete(resource_of(form.kind), name, NAMESPACE)
        await self._gone(await self._pods(name, None))

    async def shrink(self, form: Form, name: str, gone: set[str]) -> Ending:
        """Take one worker away, with which these replicas' pods go; judge what follows.

        A launch over ssh ends with any of its workers; under torchrun the others go on.
        """
        alone = form.kind == "PyTorchTrainingJob"
        expected = form.spec["elastic"]["expectedReplicas"] - 1
        wish = self.change(form, name, {"elastic": {"expectedReplicas": expected}})
        return await self.judged(name, wish, gone, alone=alone)

    async def grow(self, form: Form, name: str) -> Ending:
        """Let one worker become two, for which the ranks start anew; judge what follows.

        They are asked when the new one is there, which takes as long as it takes.
        """
        ranks, since = self._started(name), time.time()
        await self.change(form, name, {"elastic": {"expectedReplicas": 2}})
        await self.until_noted(form, name, "started", 3 * form.ranks)
        notes = self._judged_notes(name, ranks)
        return Ending(max(n.time for n in notes if n.word == "asked") - since, None)

    async def expire(self, form: Form, name: str) -> Ending:
        """Wait for the job's deadline, and judge what follows."""
        status = (await self.jobs.job(form.kind, name))["status"]
        seconds = form.spec["runPolicy"]["activeDeadlineSeconds"]
        since = datetime.fromisoformat(status["startTime"]).timestamp() + seconds
        return await self.judged(name, asyncio.sleep(since - time.time()), since=since)

    async def judged(
        self,
        name: str,
        wish: Awaitable[object],
        only: set[str] | None = None,
        since: float | None = None,
        *,
        alone: bool = False,
    ) -> Ending:
        """Every rank is asked once, and saves; the pods leave when they have, not when they must.

        ``only``: the replicas (``worker-0``) whose pods are to go, and ``alone``: whose ranks alone
        are to be asked. ``since``: the moment of the
        wish (Unix seconds) if it is another than now.
        """
        going = await self._pods(name, only)
        ranks = self._started(name, tuple(only or ()) if alone else ("",))
        since = since or time.time()
        await wish
        gone_at = await self._gone(going)
        while not ranks <= {(n.host, n.pid) for n in self.notes(name) if n.word == "saved"}:
            assert time.time() - since < GRACE_SECONDS, f"{name}: {self.notes(name)}"
            await asyncio.sleep(POLL_SECONDS)
        notes = self._judged_notes(name, ranks)
        assert gone_at - since < GRACE_SECONDS, f"{name} took its whole grace"
        times = {word: max(n.time for n in notes if n.word == word) for word in ("asked", "saved")}
        return Ending(times["asked"] - since, gone_at - times["saved"])

    def _started(self, name: str, hosts: tuple[str, ...] = ("",)) -> set[tuple[str, int]]:
        """The ranks that have started on these hosts."""
        started = (n for n in self.notes(name) if n.word == "started")
        return {(n.host, n.pid) for n in started if n.host.endswith(hosts)}

    def _judged_notes(self, name: str, ranks: set[tuple[str, int]]) -> list[Note]:
        """What these ranks noted: each was asked once, and nobody else was."""
        notes = [note for note in self.notes(name) if (note.host, note.pid) in ranks]
        assert Counter(note.word for note in notes) == dict.fromkeys(
            ("started", "asked", "saved"), len(ranks)
        ), f"{name}: {notes}"
        strangers = {(n.host, n.pid) for n in self.notes(name) if n.word == "asked"} - ranks
        assert not strangers, f"{name}: {self.notes(name)}"
        return notes

    async def _pods(self, name: str, only: set[str] | None) -> set[str]:
        """UIDs of the job's pods, or of some of them."""
        return {
            pod["metadata"]["uid"]
            for pod_name, pod in (await self.jobs.pods()).items()
            if pod["metadata"]["ownerReferences"][0]["name"] == name
            and (only is None or "-".join(pod_name.rsplit("-", 2)[1:]) in only)
        }

    async def _gone(self, uids: set[str]) -> float:
        """When the last of these pods was gone."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while uids & {pod["metadata"]["uid"] for pod in (await self.jobs.pods()).values()}:
            assert time.monotonic() < deadline, f"pods are left: {sorted(await self.jobs.pods())}"
            await asyncio.sleep(POLL_SECONDS)
        return time.time()
