"""The end of a job with real processes: deadlines, clean-up, graceful termination, expiry."""

from __future__ import annotations

import time

import pytest

from tests.embedded.command_line import Object, shell, until
from tests.embedded.lifecycle_yard import (
    START_SECONDS,
    Yard,
    condition,
    generic,
    moment,
    pytorch,
    replicas,
    shared_yard,
    template,
)

POLICIES = ("None", "Unfinished", "All")
DEADLINE_SECONDS = 5


cluster = shared_yard("ends")


def test_a_deadline_ends_the_processes_under_every_clean_up_policy(cluster: Yard) -> None:
    """Also a process that left its session, and one that is deaf."""
    names = {policy: f"late-{policy.lower()}" for policy in POLICIES}
    script = shell(
        "trap '' TERM; touch /data/$JOB; setsid sleep 3600 & while :; do sleep 0.1; done"
    )
    for policy, name in names.items():
        spec = {"activeDeadlineSeconds": DEADLINE_SECONDS, "cleanUpPolicy": policy}
        pods = template(script, grace=1, env={"JOB": name})
        cluster.submit(pytorch(name, pods, replicas=2, runPolicy=spec))
    for name in names.values():
        until(cluster.file(name).exists, f"{name} runs", START_SECONDS)
    ended: dict[str, float] = {}

    def all_have_ended() -> bool:
        for policy, name in names.items():
            if policy not in ended and not cluster.with_environment("", JOB=name):
                ended[policy] = time.time()
        return len(ended) == len(POLICIES)

    until(all_have_ended, "the processes have ended")
    for policy, name in names.items():
        status = cluster.end(name, "Failed")
        late = ended[policy] - moment(status["startTime"]) - DEADLINE_SECONDS
        print(f"{policy}: processes ended {late:.2f} s after the deadline")
        assert late >= 0
        assert condition(status, "Failed")["reason"] == "DeadlineExceeded"
        assert status["backoffCount"] == 0
        kept = dict.fromkeys(("worker-0", "worker-1"), "Failed") if policy == "None" else {}
        cluster.await_pods(name, kept)
    assert "activeDeadlineSeconds" in cluster.run("explain", names["All"])


CLEAN_UP = {
    ("Succeeded", "None"): {"worker-0": "Succeeded", "worker-1": "Running"},
    ("Succeeded", "Unfinished"): {"worker-0": "Succeeded"},
    ("Succeeded", "All"): {},
    ("Failed", "None"): {"worker-0": "Failed", "worker-1": "Failed"},
    ("Failed", "Unfinished"): {"worker-0": "Failed"},
    ("Failed", "All"): {},
}
"""Pods that are left. After a failure nothing goes on running, whatever the policy."""
EXIT_CODES = {"Succeeded": 0, "Failed": 3}


def _ending(kind: str, end: str, policy: str) -> Object:
    name = f"{kind[:3]}-{end}-{policy}".lower()
    wait_for_peer = "until [ -e /data/{0} ]; do sleep 0.05; done; exit {1}"
    script = (
        f"if [ $ORDINAL = 0 ]; then {wait_for_peer.format(name, EXIT_CODES[end])}; fi; "
        f"touch /data/{name}; exec sleep 3600"
    )
    ordinal = "$(rank)" if kind == "GenericJob" else "$(RANK)"
    pods = template(shell(script), env={"ORDINAL": ordinal, "JOB": name})
    if kind == "GenericJob":
        rules = {
            "successRules": [{"worker": [0]}],
            "failureRules": [{"worker": [0]}],
            "cleanUpPolicy": policy,
        }
        return generic(name, replicas("worker", 2, pods), **rules)
    spec = {"runPolicy": {"cleanUpPolicy": policy}}
    return pytorch(name, pods, replicas=2, policy="Never", **spec)


@pytest.mark.parametrize("kind", ["PyTorchTrainingJob", "GenericJob"])
def test_each_clean_up_policy_leaves_the_pods_and_processes_it_says(
    cluster: Yard, kind: str
) -> None:
    """worker-0 ends the job, with 0 or with 3, while worker-1 runs for ever."""
    jobs = {case: _ending(kind, *case) for case in CLEAN_UP}
    names = {case: job["metadata"]["name"] for case, job in jobs.items()}
    cluster.submit(*jobs.values())
    for case, wanted in CLEAN_UP.items():
        cluster.end(names[case], case[0])
        cluster.await_pods(names[case], wanted)
        cluster.await_processes(names[case], alive="Running" in wanted.values())


def test_a_replica_is_asked_to_end_and_has_its_grace_period_before_it_is_killed(
    cluster: Yard,
) -> None:
    """One handler takes its time and finishes; a replica that ignores SIGTERM is killed."""
    handles = shell(
        "trap 'sleep 0.5; echo saved > /data/polite; exit 0' TERM; touch /data/polite-ready; "
        "while :; do sleep 0.05; done"
    )
    ignores = shell("trap '' TERM; touch /data/deaf-ready; while :; do sleep 0.05; done")
    cluster.submit(
        pytorch("polite", template(handles, grace=20, env={"JOB": "polite"})),
        pytorch("deaf", template(ignores, grace=1, env={"JOB": "deaf"})),
    )
    for name in ("polite", "deaf"):
        until(cluster.file(f"{name}-ready").exists, f"{name} runs", START_SECONDS)
    cluster.run("pause", "polite", "deaf")
    for name in ("polite", "deaf"):
        cluster.await_pods(name, {})
        cluster.await_processes(name, alive=False)
    assert cluster.lines("polite") == ["saved"]
    assert cluster.await_phase("deaf", "Paused")["backoffCount"] == 0


def test_an_ended_job_deletes_itself_after_its_ttl(cluster: Yard) -> None:
    brief = pytorch("brief", template(["true"]), runPolicy={"ttlSecondsAfterFinished": 2})
    brief["metadata"]["finalizers"] = ["example.com/look"]
    cluster.submit(
        brief,
        pytorch("bad-brief", template(["false"]), runPolicy={"ttlSecondsAfterFinished": 0}),
        pytorch("kept", template(["true"])),
    )
    until(lambda: "deletionTimestamp" in cluster.job("brief")["metadata"], "it is deleted")
    made = cluster.job("brief")
    assert made["status"]["phase"] == "Succeeded"
    late = moment(made["metadata"]["deletionTimestamp"])
    late -= moment(made["status"]["completionTime"]) + 2
    cluster.api.patch("brief", "PyTorchTrainingJob", {"metadata": {"finalizers": None}})
    until(lambda: cluster.is_gone("brief") and cluster.is_gone("bad-brief"), "both went")
    print(f"deleted {late:.2f} s after its ttl")
    assert late > -1  # a deletionTimestamp has no fractions
    until(lambda: not cluster.pods("brief"), "its pod went with it")
    assert cluster.end("kept", "Succeeded")
