"""Elastic jobs whose newcomers fail: what is drawn of them, and what must hold.

Nobody else's pod goes for a newcomer's failure, and what is counted is what was spent (decisions 94
and 95).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.simulation import job_policies, restart_budgets
from tests.simulation.server import Obj
from trainyard.kinds.shared import labels

PAID = ("Error", "OOMKilled", "Completed", "LaunchTimeout", "Hung")
"""Reasons of attempts that a replica ended by itself."""
MOST_RESIZES = 8


@dataclass(frozen=True, slots=True)
class Newcomers:
    """How the pods of replicas that come as a job grows run: failures have a chance of `rate`."""

    rate: float
    rng: random.Random

    def outcome(self, job: Obj, pod: Obj) -> tuple[float, int] | None:
        """Seconds and exit code of a pod that fails because it is a newcomer's."""
        if not _is_newcomer(job, pod) or self.rng.random() >= self.rate:
            return None
        return self.rng.uniform(0.1, 8.0), self.rng.choice((1, 1, 1, 137))


def draw(rng: random.Random, jobs: Sequence[Obj]) -> tuple[Newcomers, list[tuple[float, int, int]]]:
    """Newcomers, and moments at which a job (by number) gets a size, some every few seconds."""
    resizes = []
    for number, job in enumerate(jobs):
        if "elastic" not in job["spec"] or rng.random() < 0.5:
            continue
        most, every = job["spec"]["elastic"]["maxReplicas"], rng.uniform(5.0, 20.0)
        moment = rng.uniform(5.0, 20.0)
        for _ in range(rng.randint(1, MOST_RESIZES)):
            resizes.append((moment, number, rng.randint(max(1, most - 2), most)))
            moment += every
    return Newcomers(rng.choice((0.0, 0.5, 0.9)), rng), resizes


def _is_newcomer(job: Obj, pod: Obj) -> bool:
    if "elastic" not in job["spec"]:
        return False
    of_type = pod["metadata"]["labels"][labels.REPLICA_TYPE]
    types = job["spec"].get("replicaSpecs") or [{"type": "worker", **job["spec"]["worker"]}]
    first = next(each["replicas"] for each in types if each["type"] == of_type)
    return int(pod["metadata"]["labels"][labels.REPLICA_INDEX]) >= first


def survivors_stay(job: Obj) -> bool:
    """Whether nobody of the job is restarted along with others."""
    spec = job["spec"]
    types = spec.get("replicaSpecs") or ()
    chosen = [spec.get("runPolicy") or {}, *types]
    is_plain = job["kind"] == "PyTorchTrainingJob" and "torchrunConfig" not in spec
    is_elastic = (spec.get("elastic") or {}).get("enabled") and not is_plain
    return bool(is_elastic) and not any("restartScope" in each for each in chosen)


def is_needless(job: Obj, pod: Obj, internal: Obj) -> bool:
    """Whether a pod that runs well is deleted, of a replica that never left its job.

    The launch of a DeepSpeedJob, its first worker, is replaced as the size changes.
    """
    metadata = pod["metadata"]
    record = (internal.get("replicas") or {}).get(metadata["name"]) or {}
    is_launch = job["kind"] == "DeepSpeedJob" and metadata["name"].endswith("-worker-0")
    ended = pod["status"].get("phase") in ("Succeeded", "Failed") or any(
        "terminated" in container["state"]
        for container in pod["status"].get("containerStatuses") or ()
    )
    is_leaving = metadata.get("deletionTimestamp") is not None
    return not (is_launch or ended or is_leaving or record.get("grown"))


def miscounts(old: Obj, new: Obj, job: Obj) -> Iterator[str]:
    """Whether what was spent is what attempts tell that ended by failures."""
    if not survivors_stay(job) or job_policies.has_rules(job) or not old.get("attempts"):
        return
    if restart_budgets.refills(job):
        return
    known = {attempt["number"] for attempt in old["attempts"] if "endTime" in attempt}
    over = [a for a in new["attempts"][:-1] if a["number"] not in known and "endTime" in a]
    paid = [a for a in over if a.get("replica") and a["reason"] in PAID]
    spent = (new.get("backoffCount") or 0) - (old.get("backoffCount") or 0)
    if spent != len(paid):
        yield f"spent {spent} restarts as attempts ended like this: {over}"
