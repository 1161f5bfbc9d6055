"""How `explain` reads the end of a replica from its pod, its events and its job's spec."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.unit.client.objects import (
    Object,
    ago,
    condition,
    event,
    job,
    pod,
    pod_name,
    situation,
    task,
)
from trainyard import diagnosis
from trainyard.cli.commands.explain import render
from trainyard.diagnosis import exit_meanings
from trainyard.kinds.shared.reasons import without_torchrun_report

BANNER = "=" * 60
REPORT = f"""\
E1121 16:37:36.5 2 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1)

{BANNER}
train.py FAILED
{"-" * 60}
Root Cause (first observed failure):
[0]:
  exitcode  : 1 (pid: 8)
{BANNER}"""


def attempt(code: int = 1, number: int = 1, end: float = 10) -> Object:
    return {
        "number": number,
        "startTime": ago(60),
        "endTime": ago(end),
        "replica": pod_name("worker-0"),
        "reason": "Error",
        "exitCode": code,
    }


def spec(policy: object = None, kind: str = "worker", **more: object) -> Object:
    entry: Object = {"type": kind, "replicas": 1}
    if policy is not None:
        entry["restartPolicy"] = policy
    return {"replicaSpecs": [entry], **more}


def explained(
    code: int = 1,
    *,
    pods: Sequence[Object] = (),
    events: Sequence[Object] = (),
    reason: str = "Failed",
    phase: str = "Failed",
    **more: object,
) -> str:
    obj = job(phase, attempts=[attempt(code)], conditions=[condition("Failed", "True", reason)])
    obj["spec"] = more.pop("spec", {})
    obj["kind"] = more.pop("kind", obj["kind"])
    obj["status"] |= more
    known = situation(obj, pods, events)
    return render(known, diagnosis.causes(known))


def ended(code: int, message: str = "", container: str = "pytorch") -> Object:
    state = {"terminated": {"exitCode": code, "reason": "Error", "message": message}}
    return pod("worker-0", "Failed", states={container: state})


def test_the_cause_is_read_from_the_whole_message_of_the_pod_not_from_torchruns_report() -> None:
    words = f"Traceback (most recent call last):\nValueError: rate is negative\n{REPORT}"
    text = explained(pods=[ended(1, words)])
    assert "its program ended with ValueError: rate is negative" in text
    assert "Root Cause" not in text


def test_a_report_is_left_out_where_there_is_nothing_else() -> None:
    assert "train.py FAILED" not in explained(pods=[ended(1, REPORT)])


def test_lines_of_torchruns_agent_are_no_last_words() -> None:
    line = "W1121 16:40:08.1 2 torch/distributed/elastic/agent/server/api.py:753] Received 15"
    assert without_torchrun_report(f"{line}\nboom\n{line}\n") == "boom\n"


def test_an_init_container_that_failed_is_named() -> None:
    failed = pod("worker-0", "Failed")
    failed["spec"]["initContainers"] = [{"name": "fetch"}]
    state = {"terminated": {"exitCode": 7, "message": "cannot download"}}
    failed["status"]["initContainerStatuses"] = [{"name": "fetch", "state": state}]
    text = explained(7, pods=[failed])
    assert "worker-0's init container fetch failed (exit code 7)" in text
    assert "| cannot download" in text
    assert "trainyard logs digits --replica worker-0 -c fetch" in text


@pytest.mark.parametrize("probe", ["liveness", "startup"])
def test_a_probe_that_had_the_container_ended_is_the_cause(probe: str) -> None:
    name = pod_name("worker-0")
    message = f"{probe.capitalize()} probe failed: its command ended with 1"
    events = [
        event(name, "Unhealthy", message, age=12),
        event(name, "Killing", f"Container pytorch failed {probe} probe", warns=False, age=12),
    ]
    text = explained(143, pods=[ended(143)], events=events)
    assert f"worker-0 failed (exit code 143): its {probe} probe failed, so it was ended" in text
    assert text.count(message) == 1, "as evidence, not again as a warning"
    assert f"{probe}Probe" in text
    assert "would have restarted it" not in text


def test_a_probe_of_an_earlier_attempt_is_not_the_cause() -> None:
    message = "Container c failed liveness probe"
    killing = event(pod_name("worker-0"), "Killing", message, warns=False, age=90)
    assert "probe" not in explained(1, events=[killing])


@pytest.mark.parametrize(
    ("code", "given", "words"),
    [
        (1, spec(), "restartPolicy is Never: it is not restarted"),
        (1, spec("ExitCode"), "restartPolicy is ExitCode, which restarts after 130, 137, 138, 143"),
        (1, spec("Always", runPolicy={"backoffLimit": 0}), "runPolicy.backoffLimit is 0"),
        (137, spec(), "restartPolicy ExitCode or OnFailure would have restarted it"),
    ],
)
def test_why_nothing_was_restarted_is_told(code: int, given: Object, words: str) -> None:
    assert words in explained(code, spec=given)


def test_the_budget_of_a_generic_job_is_told_by_its_own_name() -> None:
    for policy in (None, {"policy": "OnFailure", "limit": 0}):
        text = explained(1, spec=spec(policy), kind="GenericJob")
        assert "restartPolicy is OnFailure, but restartPolicy.limit is 0" in text
    text = explained(1, spec=spec({"limit": 2}), kind="GenericJob")
    assert "its restarts are used up: restartPolicy.limit is 2" in text


def test_a_container_that_could_not_be_started_says_why() -> None:
    message = "container 'pytorch' has neither command nor args"
    assert exit_meanings.explain_exit(128, "ContainerCannotRun", message).what.endswith(message)
    runc = 'runc create failed: exec: "trian": executable file not found in $PATH: unknown'
    assert (
        "the command trian does not exist"
        in exit_meanings.explain_exit(128, "StartError", runc).what
    )


@pytest.mark.parametrize(
    ("kind", "setting", "remedy"),
    [
        ("GenericJob", "cleanUpPolicy None", "spec.cleanUpPolicy: Unfinished"),
        ("DeepSpeedJob", "cleanUpPolicy None", "spec.runPolicy.cleanUpPolicy: Unfinished"),
        ("ColossalAIJob", "cleanUpWorkers false", "spec.runPolicy.cleanUpWorkers: true"),
    ],
)
def test_replicas_that_outlive_the_success_of_their_job_are_told(
    kind: str, setting: str, remedy: str
) -> None:
    obj = job("Succeeded", startTime=ago(100), completionTime=ago(40), kind=kind)
    pods = [pod("ps-0", "Running"), pod("worker-0", "Succeeded")]
    known = situation(obj, pods)
    text = render(known, diagnosis.causes(known))
    assert f"still running, as {setting} has it: ps-0" in text
    assert "trainyard delete digits" in text
    assert remedy in text


def test_a_job_that_runs_again_tells_what_ended_the_attempt_before() -> None:
    obj = job("Running", attempts=[attempt(137)], aggregate={"running": 1})
    known = situation(obj)
    text = render(known, diagnosis.causes(known))
    assert "nothing is wrong" in text
    assert "attempt 1 was ended by worker-0 (exit code 137) 10s ago" in text


def test_a_replica_that_is_not_ready_is_told() -> None:
    running = pod("worker-0", "Running", states={"pytorch": {"running": {}}})
    running["status"]["containerStatuses"][0]["ready"] = False
    message = "Readiness probe failed: no answer within 1s"
    obj = job("Running", aggregate={"running": 1}, tasks=[task("Running")])
    known = situation(obj, [running], [event(pod_name("worker-0"), "Unhealthy", message)])
    text = render(known, diagnosis.causes(known))
    assert "worker-0 runs, but its probes do not call it ready" in text
    assert text.count(message) == 1


def test_an_init_container_that_runs_is_not_called_unready() -> None:
    waiting = pod("worker-0", "Pending", states={"pytorch": {"waiting": {}}})
    init = {"name": "fetch", "ready": False, "state": {"running": {"startedAt": ago(5)}}}
    waiting["status"]["initContainerStatuses"] = [init]
    known = situation(job("Pending", tasks=[task("Pending")]), [waiting])
    text = render(known, diagnosis.causes(known))
    assert "init container fetch runs" in text
    assert "ready" not in text


def test_a_probe_that_succeeds_by_now_is_no_warning() -> None:
    running = pod("worker-0", "Running", states={"pytorch": {"running": {}}})
    running["status"]["containerStatuses"][0]["ready"] = True
    events = [event(pod_name("worker-0"), "Unhealthy", "Readiness probe failed: no")]
    obj = job("Running", aggregate={"running": 1})
    assert diagnosis.warnings(situation(obj, [running], events)) == []


def test_a_warning_has_its_age_and_is_told_once() -> None:
    events = [event("digits", "Odd", "again", age=90), event("digits", "Odd", "again", age=30)]
    known = situation(job("Running"), (), events)
    assert diagnosis.warnings(known) == ["Odd: again (30s ago)"]


def test_a_request_above_the_quota_is_not_said_to_wait_for_others() -> None:
    refusal = {
        "type": "PodScheduled",
        "status": "False",
        "message": "queue q allows 1 cpu: 0 in use, 1600m wanted, more than it allows at all",
    }
    waiting = pod("worker-0", node="", conditions=(refusal,))
    known = situation(job("Pending"), [waiting])
    text = render(known, diagnosis.causes(known))
    assert "asks for more than queue q allows at all" in text
    assert "used up" not in text


def test_words_of_a_program_neither_colour_nor_clear_the_terminal() -> None:
    words = "\x1b[2J\x1b[31mred\x1b[0m\x07\r\nstep 1\rstep 2\r\n\x1b]0;title\x07bell"
    text = explained(1, pods=[ended(1, words)])
    assert "| red\N{REPLACEMENT CHARACTER}\n" in text
    assert "    | step 2\n" in text, "of a progress bar the last state"
    assert "    | bell\n" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("prefix", ["", "cannot start: "])
def test_what_a_preflight_missed_is_the_cause(prefix: str) -> None:
    message = "the preflight failed with exit code 2: missing are a.py on worker-0, worker-1"
    text = explained(2, pods=[ended(2, f"trainyard: {prefix}digits-0: {message}")])
    assert "the launch was not started: missing are a.py on worker-0, worker-1" in text
    assert "check the path" in text
    assert ("another try would end the same way" in text) is bool(prefix)


def test_a_folder_that_a_user_may_not_enter_is_the_cause() -> None:
    message = "cannot run python: user 1000 may not enter /root"
    failed = ended(126, message)
    failed["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] = "ContainerCannotRun"
    obj_attempt = attempt(126) | {"reason": "ContainerCannotRun"}
    text = explained(126, pods=[failed], attempts=[obj_attempt])
    assert "user 1000, as whom it runs, may not enter /root" in text
    assert "another try would end the same way, so there is none" in text
    assert "chmod +x" not in text


def test_exit_code_138_is_read_as_the_wish_for_a_restart() -> None:
    assert "asked to be restarted" in exit_meanings.explain_exit(138).what


def test_a_full_disk_comes_before_everything_that_it_hides() -> None:
    known = situation(job("Running"), full_disk="/state")
    text = render(known, diagnosis.causes(known))
    assert "cannot write down what becomes of it: the disk is full" in text
    assert "no room is left in /state" in text
    over = situation(job("Succeeded"), full_disk="/state")
    assert "disk" not in render(over, diagnosis.causes(over))


def test_a_replica_that_goes_on_beside_its_failed_container_is_told() -> None:
    states = {"main": {"terminated": {"exitCode": 3}}, "side": {"running": {}}}
    beside = pod("worker-0", "Running", containers=("main", "side"), states=states)
    obj = job("Running", kind="GenericJob", aggregate={"running": 1}, tasks=[task("Running")])
    known = situation(obj, [beside])
    text = render(known, diagnosis.causes(known))
    assert "container main of worker-0 has ended with exit code 3, and side beside it" in text
    assert "trainyard logs digits --replica worker-0 -c main" in text


@pytest.mark.parametrize(
    ("kind", "who"),
    [("GenericJob", "worker-0's container helper"), ("PyTorchTrainingJob", "worker-0")],
)
def test_the_container_is_blamed_whose_end_is_the_replicas(kind: str, who: str) -> None:
    """The first that failed in a GenericJob, the one that trains elsewhere."""

    def failed(code: int, said: str, at: float) -> Object:
        more = {"reason": "Error", "message": said, "finishedAt": ago(at)}
        return {"terminated": {"exitCode": code, **more}}

    states = {"pytorch": failed(3, "no data", 5), "helper": failed(3, "no port", 9)}
    pods = [pod("worker-0", "Failed", containers=("pytorch", "helper"), states=states)]
    text = explained(3, pods=pods, kind=kind)
    assert f"{who} failed (exit code 3)" in text
    said, other = ("no port", "no data") if kind == "GenericJob" else ("no data", "no port")
    assert f"| {said}" in text
    assert other not in text
    assert ("-c helper" in text) is (kind == "GenericJob")


def test_a_healthy_container_beside_the_one_that_failed_is_not_shown() -> None:
    running = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    states = {"pytorch": running, "helper": {"terminated": {"exitCode": 4, "message": "no port"}}}
    pods = [pod("worker-0", "Failed", containers=("pytorch", "helper"), states=states)]
    text = explained(4, pods=pods, kind="GenericJob")
    assert "worker-0's container helper failed (exit code 4)" in text
    assert "trainyard logs digits --replica worker-0 -c helper" in text


@pytest.mark.parametrize(
    "said",
    [
        "sh -c exit 5 ended with 5",
        "PostStartHook failed: command 'sh -c exit 5' exited with 5: ",
    ],
)
def test_a_post_start_hook_that_had_the_container_ended_is_the_cause(said: str) -> None:
    events = [event(pod_name("worker-0"), "FailedPostStartHook", said, age=12)]
    text = explained(143, pods=[ended(143)], events=events)
    assert "its postStart hook failed (exit code 5), so it was ended" in text
    assert "lifecycle.postStart" in text
    assert "SIGTERM" not in text
    assert "would have restarted it" not in text
    assert text.count(said.strip()) == 1


def test_a_startup_probe_that_has_yet_to_succeed_is_no_warning() -> None:
    message = "Startup probe failed: its command ended with 1"
    events = [event(pod_name("worker-0"), "Unhealthy", message)]
    state = {"pytorch": {"running": {"startedAt": ago(3)}}}
    known = situation(
        job("Running", tasks=[task("Running")]), [pod(phase="Running", states=state)], events
    )
    assert diagnosis.warnings(known, diagnosis.causes(known)) == []


@pytest.mark.parametrize(
    ("phases", "joins"),
    [
        (("Running", "Failed"), ""),
        (("Running", "Creating"), "the other one joins"),
        (("Running", "Pending", "Pending"), "the other 2 join"),
    ],
)
def test_an_elastic_job_waits_for_those_that_can_come(phases: tuple[str, ...], joins: str) -> None:
    counts = {p.lower(): phases.count(p) for p in phases}
    obj = job("Running", aggregate=counts, tasks=[task(*phases)])
    obj["spec"] = {"elastic": {"enabled": True, "expectedReplicas": len(phases)}}
    obj["status"]["internal"] = {"replicas": {pod_name("worker-1"): {"attempt": 1, "lost": True}}}
    obj["status"]["conditions"] = [condition("ReplicaFailure", "True", "ErrorInPod", "it failed")]
    known = situation(obj)
    text = render(known, diagnosis.causes(known))
    assert f"runs with 1 of {len(phases)} replicas" in text
    assert ("join" in text) is bool(joins)
    assert joins in text
    assert ("1 of its replicas failed for good, and it goes on without it" in text) is not joins


def test_the_sshd_of_a_launch_that_has_just_ended_is_not_kept_running() -> None:
    left = pod("worker-1", "Running", states={"worker": {"running": {}}})
    for age, is_told in ((3, False), (90, True)):
        obj = job("Succeeded", kind="DeepSpeedJob", completionTime=ago(age))
        known = situation(obj, [left])
        text = render(known, diagnosis.causes(known))
        assert ("still running, as cleanUpPolicy None has it" in text) is is_told


@pytest.mark.parametrize(
    ("missing", "what", "advice"),
    [
        ("nets.blocks", "the package nets has no module blocks", "look why that file is missing"),
        ("nets", "the Python package nets is not there", "install it"),
    ],
)
def test_a_module_that_is_missing_may_be_the_users_own(
    missing: str, what: str, advice: str
) -> None:
    words = f"ModuleNotFoundError: No module named '{missing}'"
    reading = exit_meanings.explain_exit(1, "Error", words)
    assert what in reading.what
    assert advice in reading.advice[0]
    if "." in missing:
        assert not reading.advice[0].startswith("install")
