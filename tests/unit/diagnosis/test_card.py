"""The failure card: who is to blame, and what is said of it, at any width."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.unit.client.objects import (
    Object,
    ago,
    condition,
    job,
    pod,
    pod_name,
    situation,
    task,
)
from tests.unit.diagnosis.captured import tail
from trainyard import diagnosis
from trainyard.cli.commands.explain import render
from trainyard.cli.failure_card_text import card_lines
from trainyard.client.log_tails import Tail
from trainyard.client.pod_views import PodView
from trainyard.diagnosis import Situation
from trainyard.diagnosis.failure_card import FailureCard, failure_card_of
from trainyard.kinds.shared import labels
from trainyard.lifecycle.internal_status import Repeat
from trainyard.lifecycle.texts import same_again


def ended(replica: str, code: int, at: float = 10, reason: str = "Error") -> Object:
    state = {"exitCode": code, "reason": reason, "finishedAt": ago(at)}
    return pod(replica, "Failed", states={"pytorch": {"terminated": state}})


def failed(
    named: str,
    codes: Mapping[str, int],
    logs: Mapping[str, Tail],
    *,
    kind: str = "PyTorchTrainingJob",
    tasks: list[Object] | None = None,
    reason: str = "Error",
) -> Situation:
    """A job of which the status says that `named` ended it, first of all."""
    attempt = {
        "number": 1,
        "startTime": ago(60),
        "endTime": ago(10),
        "replica": pod_name(named),
        "reason": reason,
        "exitCode": codes[named],
    }
    obj = job(
        "Failed",
        kind=kind,
        attempts=[attempt],
        startTime=ago(60),
        completionTime=ago(10),
        conditions=[condition("Failed", "True", "Failed", f"{pod_name(named)} failed")],
        tasks=tasks or [task(*("Failed" for _ in codes))],
    )
    pods = [ended(each, code, reason=reason) for each, code in codes.items()]
    return situation(obj, pods, logs={pod_name(each): log for each, log in logs.items()})


def of_capture(failure: str, named: str, worker_0: int, worker_1: int) -> FailureCard:
    """The card of a captured failure of two replicas."""
    logs = {}
    for replica in ("worker-0", "worker-1"):
        try:
            logs[replica] = tail(f"{failure}.{replica}")
        except FileNotFoundError:
            logs[replica] = Tail()
    card = failure_card_of(failed(named, {"worker-0": worker_0, "worker-1": worker_1}, logs))
    assert card is not None
    return card


PEERS = {
    "assertion.plain": "1 peer ended because of it",
    "assertion.torchrun": "3 peers ended because of it",
    "killed.plain": "1 peer ended because of it",
    "killed.torchrun": "3 peers ended because of it",
    "segv.plain": "1 peer was stopped because of it",
    "silent.torchrun": "3 peers were stopped because of it",
    "world.plain": "1 peer ended because of it",
}


@pytest.mark.parametrize("named", ["worker-0", "worker-1"])
@pytest.mark.parametrize(
    ("failure", "codes", "who", "reason"),
    [
        ("assertion.plain", (1, 1), "rank 1 on worker-1", "AssertionError: loss is nan"),
        ("assertion.torchrun", (1, 1), "rank 1 on worker-0", "AssertionError: loss is nan"),
        ("killed.plain", (1, 137), "worker-1", "it was killed (SIGKILL)"),
        ("killed.torchrun", (137, 1), "rank 1 on worker-0", "it was killed (SIGKILL)"),
        ("segv.plain", (143, 139), "worker-1", "Segmentation fault"),
        ("silent.torchrun", (3, 143), "rank 1 on worker-0", "it ended with exit code 3"),
        ("world.plain", (1, 1), "worker-0", "DistStoreError: Timed out after 6 seconds"),
    ],
)
def test_the_one_to_blame_is_right_whomever_the_status_names(
    failure: str, codes: tuple[int, int], who: str, reason: str, named: str
) -> None:
    card = of_capture(failure, named, *codes)
    assert card.who == who
    assert card.reason.startswith(reason)
    assert card.peers == PEERS[failure]
    assert card.command == f"trainyard logs digits --replica {who.rpartition(' ')[2]}"


@pytest.mark.parametrize(
    ("failure", "cause", "remedy"),
    [
        ("imports", "the Python package nosuchpackage is not there", "install it"),
        ("oncuda", "asks for CUDA, and there is no GPU", "nvidia.com/gpu"),
        ("disk", "a volume or the disk is full", "make room"),
        ("port", "a port was in use already", "used twice by mistake"),
        ("missing", "the file /data/train.csv does not exist", "check the path"),
        ("env", "LOCAL_RANK is set by a launcher", "--launcher torchrun"),
        ("world", "only 2 of 5 processes came", "leave world_size to the launcher"),
        ("chained", "it followed from KeyError: 'lr' (chained.py:3 in read)", "chained.py, line 5"),
        ("loader", "it was raised in DataLoader worker process 0", "correct loader.py, line 6"),
        ("module", "", "correct helper.py, line 3"),
        ("syntax", "", "correct syntax.py, line 2"),
    ],
)
def test_cause_and_remedy_go_with_the_exception(failure: str, cause: str, remedy: str) -> None:
    card = of_capture(f"{failure}.plain", "worker-0", 1, 143)
    assert cause in card.cause
    assert bool(cause) == bool(card.cause)
    assert remedy in card.remedy


STACK = """\
Fatal Python error: Segmentation fault

Current thread 0x00007f11 (most recent call first):
  File "/work/train.py", line 30 in main"""


def test_a_crash_counts_and_not_an_exception_that_was_survived() -> None:
    """The stack is in the container's message, below all that the log has."""
    lines = ["Traceback (most recent call last):", '  File "/work/train.py", line 3, in save']
    log = Tail([*lines, "OSError: no room", "step 7"], [ago(12)] * 4)
    known = failed("worker-0", {"worker-0": 139}, {"worker-0": log})
    (only,) = known.pods
    only.obj["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = STACK
    card = failure_card_of(known)
    assert card is not None
    assert (card.reason, card.place) == ("Segmentation fault", "train.py:30 in main")


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (1, "with these words its program ended (exit code 1)"),
        (3, "these are its last words; none of them says why it ended with exit code 3"),
    ],
)
def test_words_with_which_a_program_ended_are_the_cause(code: int, cause: str) -> None:
    log = Tail(["no checkpoint in /ckpt: give --resume"], [ago(11)])
    card = failure_card_of(failed("worker-0", {"worker-0": code}, {"worker-0": log}))
    assert card is not None
    assert (card.reason, card.cause) == ("no checkpoint in /ckpt: give --resume", cause)


def test_where_a_rank_stood_is_told_and_not_what_a_peer_said_of_it() -> None:
    """Over ssh the ranks of all replicas write into one log."""
    lines = [
        "[rank0]: RuntimeError: Connection closed by peer",
        "trainyard: rank 1 on worker-1 failed with exit code 3",
    ]
    log = Tail(lines, [ago(11)] * len(lines))
    known = failed("worker-0", {"worker-0": 3}, {"worker-0": log}, kind="DeepSpeedJob")
    known.job.obj["status"]["attempts"][0]["lastSeen"] = "rank 1 stood at train.py:6 in main"
    card = failure_card_of(known)
    assert card is not None
    assert card.reason == "it ended with exit code 3, and wrote nothing of why"
    assert card.cause == "rank 1 stood at train.py:6 in main"


def test_processes_that_fail_alike_are_counted() -> None:
    log = tail("module.plain.worker-0")
    known = failed("worker-0", dict.fromkeys(("worker-0", "worker-1", "worker-2"), 1), {})
    logs = {pod_name(f"worker-{index}"): log for index in range(3)}
    card = failure_card_of(situation(known.job.obj, [each.obj for each in known.pods], logs=logs))
    assert card is not None
    assert card.peers == "2 other processes failed alike"


def test_what_ended_earlier_attempts_in_the_same_pod_is_not_blamed_again() -> None:
    log = tail("module.plain.worker-0")
    mark = "trainyard: attempt {} starts here, after attempt {} in this pod"
    twice = Tail([*log.lines, mark.format(2, 1), *log.lines])
    card = failure_card_of(
        failed("worker-0", {"worker-0": 1, "worker-1": 143}, {"worker-0": twice})
    )
    assert card is not None
    assert card.peers == "1 peer was stopped because of it"

    silent = Tail([*log.lines, mark.format(2, 1)])
    known = failed("worker-0", {"worker-0": 7, "worker-1": 143}, {"worker-0": silent})
    state = known.pods[0].obj["status"]["containerStatuses"][0]["state"]["terminated"]
    state["message"] = "\n".join(silent.lines[-5:])
    card = failure_card_of(known)
    assert card is not None
    assert card.reason == "it ended with exit code 7, and wrote nothing of why"
    assert not card.place


def test_the_replica_of_the_rank_is_to_blame_and_not_the_one_that_launched_it() -> None:
    said = [
        "worker-1: Traceback (most recent call last):",
        'worker-1:   File "/home/ada/train.py", line 3, in <module>',
        "worker-1:     step()",
        "worker-1: ValueError: x",
        "trainyard: rank 3 on worker-1 failed with exit code 1",
    ]
    codes = {"worker-0": 1, "worker-1": 137}
    card = failure_card_of(failed("worker-0", codes, {"worker-0": Tail(said)}, kind="DeepSpeedJob"))
    assert card is not None
    assert (card.who, card.replica) == ("rank 3 on worker-1", "worker-1")
    assert card.command == "trainyard logs digits --replica worker-0", "which has the log"
    assert (card.place, card.source) == ("train.py:3", "step()")


def test_an_interpreter_that_aborts_while_it_ends_had_an_exception_before() -> None:
    """gloo's threads do so, under one job in some: exit code 134 instead of 1."""
    log = tail("assertion.plain.worker-1")
    end = "terminate called without an active exception"
    aborted = Tail([*log.lines, end], [*log.times, log.times[-1]])
    logs = {"worker-0": tail("assertion.plain.worker-0"), "worker-1": aborted}
    card = failure_card_of(failed("worker-0", {"worker-0": 134, "worker-1": 134}, logs))
    assert card is not None
    assert (card.who, card.reason) == ("rank 1 on worker-1", "AssertionError: loss is nan")


def test_a_limit_of_memory_comes_before_whatever_was_written() -> None:
    log = tail("module.plain.worker-0")
    known = failed("worker-0", {"worker-0": 137}, {"worker-0": log}, reason="OOMKilled")
    card = failure_card_of(known)
    assert card is not None
    assert card.reason == "it used more memory than it may"
    assert card.ending == "exit code 137, OOMKilled"
    assert not card.place


def test_what_we_say_of_a_failure_is_not_what_the_program_wrote() -> None:
    """A second failure by the same cause has a sentence of ours in its condition."""
    repeat = Repeat("exit code 9", 2, "exit code 9")
    for words, reason in (
        ("", "it ended with exit code 9, and wrote nothing of why"),
        ("x: y", "x: y"),
    ):
        known = failed("worker-0", {"worker-0": 9}, {})
        said = f": {words}" if words else ""
        text = f"Pod[{pod_name('worker-0')}] exited with error code 9{said}\n{same_again(repeat)}"
        told = condition("ReplicaFailure", "True", "ErrorInPod", text)
        known.job.obj["status"]["conditions"].append(told)
        card = failure_card_of(known)
        assert card is not None
        assert card.reason == reason


def test_a_peer_that_ended_by_itself_was_not_stopped() -> None:
    logs = {"worker-0": Tail(["no data"]), "worker-1": Tail(["no model"])}
    card = failure_card_of(failed("worker-0", {"worker-0": 3, "worker-1": 4}, logs))
    assert card is not None
    assert card.peers == "1 peer failed too"


def test_a_peer_that_awaited_its_next_start_was_not_stopped() -> None:
    """Its pod of an earlier attempt has ended, and there was none of this one."""
    workers = task("Failed", "Deleted", "Running")
    workers["replicas"][1]["uid"] = ""
    known = failed("worker-0", {"worker-0": 1}, {}, tasks=[workers])
    known = replace(known, pods=[*known.pods, PodView(ended("worker-1", 1, at=70))])
    card = failure_card_of(known)
    assert card is not None
    assert card.peers == "1 peer was stopped because of it"


def test_a_peer_that_was_taken_away_before_was_not_stopped() -> None:
    workers = task("Failed", "Deleted")
    workers["replicas"][1]["uid"] = ""
    gone = pod("worker-1", "Failed")
    gone["status"]["reason"] = "Terminated"
    known = failed("worker-0", {"worker-0": 1}, {}, tasks=[workers])
    card = failure_card_of(replace(known, pods=[*known.pods, PodView(gone)]))
    assert card is not None
    assert card.peers == ""


def test_the_ends_of_peers_whose_pods_are_deleted_after_it_are_told_as_they_were() -> None:
    """By what status keeps of them: one failed, one succeeded, one was stopped."""
    workers = task("Failed", "Deleted", "Deleted", "Deleted")
    for replica, code in zip(workers["replicas"], (1, 2, 0, None), strict=True):
        container = {"name": "pytorch", "exitCode": code} if code is not None else {"name": "main"}
        replica["containers"] = [container]
        replica |= {"reason": "Error"} if code else {}
    card = failure_card_of(failed("worker-0", {"worker-0": 1}, {}, tasks=[workers]))
    assert card is not None
    assert card.peers == "1 peer was stopped because of it, 1 peer failed too"


def test_words_of_a_pod_that_is_gone_unread_are_not_said_to_be_none() -> None:
    known = replace(failed("worker-0", {"worker-0": 1}, {}), pods=[])
    card = failure_card_of(known)
    assert card is not None
    assert card.reason == "it ended with exit code 1; its log went with its pod"
    assert card.remedy.startswith("read its log where")


def test_what_a_peer_answered_after_the_end_of_its_job_is_no_failure_of_its_own() -> None:
    known = failed("worker-0", {"worker-0": 1}, {}, tasks=[task("Failed", "Deleted")])
    known = replace(known, pods=[*known.pods, PodView(ended("worker-1", 1, at=8))])
    card = failure_card_of(known)
    assert card is not None
    assert (card.replica, card.peers) == ("worker-0", "1 peer was stopped because of it")


def test_a_job_that_a_jumping_clock_ends_before_its_start_is_given_no_time() -> None:
    known = failed("worker-0", {"worker-0": 1}, {})
    known.job.obj["status"]["completionTime"] = ago(70)
    card = failure_card_of(known)
    assert card is not None
    assert card.outcome == "Failed"


def test_words_of_another_replica_are_not_quoted() -> None:
    known = failed("worker-0", {"worker-0": 9, "worker-1": 9}, {})
    text = f"Pod[{pod_name('worker-1')}] exited with error code 9: boom"
    told = condition("ReplicaFailure", "True", "ErrorInPod", text)
    known.job.obj["status"]["conditions"].append(told)
    card = failure_card_of(known)
    assert card is not None
    assert "boom" not in card.reason


def test_without_logs_the_last_words_of_the_status_are_read() -> None:
    words = "\n".join(tail("module.plain.worker-0").lines[-6:])
    gone = failed("worker-0", {"worker-0": 1}, {})
    gone.pods[0].obj["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = words
    card = failure_card_of(gone)
    assert card is not None
    assert card.reason == "KeyError: 'momentum'"
    assert card.place == "helper.py:3 in work"


def test_a_job_that_no_replica_failed_has_a_card_too() -> None:
    late = job(
        "Failed",
        conditions=[condition("Failed", "True", "DeadlineExceeded", "too late")],
        spec={"runPolicy": {"activeDeadlineSeconds": 60}},
        startTime=ago(70),
        completionTime=ago(10),
    )
    card = failure_card_of(situation(late))
    assert card is not None
    assert card.reason == "it ran longer than its deadline of 60 s"
    assert card.remedy.startswith("raise spec.runPolicy.activeDeadlineSeconds, or save")
    assert card.command == "trainyard logs digits"
    assert not card.who
    assert "deadline" not in f"{card.cause} {card.remedy}"
    late["metadata"]["annotations"] = {labels.COMMAND: "trainyard run --timeout=60 train.py"}
    card = failure_card_of(situation(late))
    assert card is not None
    assert card.remedy.startswith("raise --timeout, or save")


def test_a_job_that_has_not_failed_has_none() -> None:
    assert failure_card_of(situation(job("Running"))) is None
    assert failure_card_of(situation(job("Succeeded"))) is None


@pytest.mark.parametrize("width", [60, 120, 0])
def test_the_reason_stands_once_and_in_the_last_twelve_lines(width: int) -> None:
    card = FailureCard(
        job="PyTorchTrainingJob " + "a" * 40,
        outcome="Failed after 12345.6 s, 3 restarts",
        reason="RuntimeError: " + "the shapes do not match " * 30,
        who="rank 1023 on worker-1023",
        ending="exit code 1",
        peers="1023 peers were stopped because of it",
        place="train.py:1234 in a_function_with_a_long_name",
        source="loss = " + "very_long_name + " * 20,
        cause="a cause in many words " * 20,
        remedy="a remedy in many words " * 20,
        command="less /home/ada/" + "f" * 150,
    )
    *lines, command = card_lines(card, width)
    if width:
        assert max(map(len, lines)) <= width
        lines += [command[start : start + width] for start in range(0, len(command), width)]
    assert "\n".join(lines).count("RuntimeError") == 1
    assert "RuntimeError" in "\n".join(lines[-12:])
    assert command == f"  $ {card.command}", "to be copied as it is"


def test_colours_are_for_terminals_and_a_message_cannot_colour_it() -> None:
    card = FailureCard("J a", "Failed", "ValueError: \x1b[31mred\x1b[2J\nsecond", remedy="mend it")
    plain = "\n".join(card_lines(card))
    assert plain == "J a: Failed\n    ValueError: red second\n  → mend it"
    assert "\x1b[1m" in "\n".join(card_lines(card, 80, is_coloured=True))


def test_explain_says_below_the_card_what_it_leaves_out_and_nothing_twice() -> None:
    codes = {"worker-0": 1, "worker-1": 1}
    logs = {each: tail(f"assertion.plain.{each}") for each in codes}
    known = failed("worker-1", codes, logs)
    card = failure_card_of(known)
    assert card is not None
    text = "\n".join(card_lines(card)) + "\n" + render(known, diagnosis.causes(known), card)
    assert text.count("loss is nan") == 1
    assert text.count("assertion.py:8") == 1
    assert "restartPolicy is Never: it is not restarted" in text
    assert "Connection closed by peer" not in text


_SAVE = """\
Traceback (most recent call last):
  File "/lib/python3.11/site-packages/torch/serialization.py", line 1003, in save
    _save(
RuntimeError: basic_ios::clear: iostream error

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/work/train.py", line 12, in main
    torch.save(state, {path})
  File "/lib/python3.11/site-packages/torch/serialization.py", line 834, in __exit__
    self.file_like.write_end_of_file()
RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534
"""
"""As torch 2.13 ends a checkpoint on a full disk."""
_OSERROR = """\
Traceback (most recent call last):
  File "/work/train.py", line 12, in main
    out = open(name, "w")
OSError: [Errno 28] No space left on device: '/data/out/last.pt'
"""
_OWN = "the disk that holds the container's own files"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (_SAVE.format(path="'/data/a.pt'"), "the claim sets is full: /data/a.pt could not be"),
        (_SAVE.format(path="'/data/in/a.pt'"), "the volume quick is full: /data/in/a.pt could"),
        (_SAVE.format(path='"/srv/x"'), "the disk of the node with /mnt is full: /srv/x could"),
        (_SAVE.format(path='"/database/x"'), f"{_OWN} is full: /database/x could not be written"),
        (
            _SAVE.format(path="name"),
            "a volume or the disk is full: the claim sets at /data, the volume quick at /data/in, ",
        ),
        (_OSERROR, "the claim sets is full: /data/out/last.pt could not be written"),
    ],
)
@pytest.mark.parametrize("is_gone", [False, True])
def test_what_is_full_is_named(log: str, cause: str, is_gone: bool) -> None:
    spec = {
        "volumes": [
            {"name": "claimed", "persistentVolumeClaim": {"claimName": "sets"}},
            {"name": "quick", "emptyDir": {}},
            {"name": "host", "hostPath": {"path": "/mnt"}},
            {"name": "settings", "configMap": {"name": "c"}},
        ],
        "containers": [
            {
                "name": "pytorch",
                "volumeMounts": [
                    {"name": "claimed", "mountPath": "/data"},
                    {"name": "quick", "mountPath": "/data/in"},
                    {"name": "host", "mountPath": "/srv"},
                    {"name": "host", "mountPath": "/database", "readOnly": True},
                    {"name": "settings", "mountPath": "/etc/x"},
                ],
            },
        ],
    }
    case = failed("worker-0", {"worker-0": 1}, {"worker-0": Tail(log.splitlines())})
    case.pods[0].obj["spec"] = spec
    if is_gone:
        template = {"type": "worker", "template": {"spec": spec}}
        case.job.obj["spec"] = {"replicaSpecs": [template]}
        case = replace(case, pods=[])
    card = failure_card_of(case)
    assert card is not None
    assert card.cause.startswith(cause)
    assert "make room" in card.remedy


GLOO_MISMATCH = [
    "terminate called after throwing an instance of 'gloo::EnforceNotMet'",
    (
        "  what():  [enforce fail at /p/gloo/gloo/transport/tcp/pair.cc:456] op.preamble.length <= "
        "op.nbytes. 8 vs 4. Received data size doesn't match expected size. Is there a distributed "
        "collective mismatch in your code?"
    ),
]
GLOO_PEER = [
    "[rank0]: Traceback (most recent call last):",
    '[rank0]:   File "/w/train.py", line 8, in <module>',
    "[rank0]:     dist.all_reduce(t)",
    '[rank0]:   File "/e/site-packages/torch/distributed/c10d.py", line 3252, in all_reduce',
    "[rank0]:     work.wait()",
    (
        "[rank0]: RuntimeError: [/p/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:45706: "
        "Connection reset by peer. This is typically caused by a remote worker hanging or bugs"
    ),
]
DETAIL = [
    "[rank1]: Traceback (most recent call last):",
    '[rank1]:   File "/w/train.py", line 11, in <module>',
    "[rank1]:     dist.all_reduce(t)",
    (
        "[rank1]: RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running "
        "collective: CollectiveFingerPrint(SequenceNumber=2, OpType=ALLREDUCE, TensorShape=[3], "
        "TensorDtypes=Float), but Rank 0 is running collective: CollectiveFingerPrint("
        "SequenceNumber=2, OpType=ALLREDUCE, TensorShape=[7], TensorDtypes=Float)."
    ),
]


@pytest.mark.parametrize(
    ("lines", "code", "cause", "remedy"),
    [
        (
            GLOO_MISMATCH,
            134,
            "it was sent more than it asked for; worker-0 was in train.py:8",
            "DETAIL",
        ),
        (
            DETAIL,
            1,
            (
                "rank 1 calls ALLREDUCE, TensorShape=[3], rank 0 ALLREDUCE, TensorShape=[7]; "
                "worker-0 was in train.py:8"
            ),
            "the same shapes",
        ),
    ],
    ids=["gloo", "detail"],
)
def test_a_mismatched_collective_is_not_one_ranks_crash(
    lines: list[str], code: int, cause: str, remedy: str
) -> None:
    logs = {"worker-0": Tail(GLOO_PEER), "worker-1": Tail(lines)}
    card = failure_card_of(failed("worker-1", {"worker-0": 1, "worker-1": code}, logs))
    assert card is not None
    assert card.cause == f"the collectives of the ranks do not match: {cause}"
    assert remedy in card.remedy
    assert card.remedy.startswith("have every rank call the same ones")


def watchdog(rank: int, number: int, enqueued: int, *, waited: bool = True) -> Tail:
    """What torch 2.8 writes of a rank before its watchdog ends it, cut short."""
    at = f"[rank{rank}]:[E1127 03:00:0{rank}.222288244 ProcessGroupNCCL.cpp:"
    work = f"last enqueued NCCL work: {enqueued}, last completed NCCL work: {number - 1}."
    group = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
    ran = (
        f"Watchdog caught collective operation timeout: WorkNCCL(SeqNum={number}, OpType=ALLREDUCE,"
        " NumelIn=1000, NumelOut=1000, Timeout(ms)=600000) ran for 600038 milliseconds before "
        "timing out."
    )
    lines = [
        f"{at}683] [Rank {rank}] {ran}",
        f"{at}1785] {group} Exception detected by watchdog at work: {number}, {work}",
        "terminate called after throwing an instance of 'c10::DistBackendError'",
        f"  what():  {group} Process group watchdog thread terminated with exception: {ran}",
    ]
    told = f"{at}1858] {group} Received a dump signal due to a collective timeout from rank 0 and "
    told += f"we will try our best to dump the debug info. L{work[1:]}"
    lines = lines if waited else [told]
    return Tail(lines, [ago(20 - rank)] * len(lines))


@pytest.mark.parametrize("says", [True, False])
def test_a_watchdog_of_nccl_names_the_rank_that_did_not_come(says: bool) -> None:
    codes = dict.fromkeys(("worker-0", "worker-1", "worker-2"), 134)
    logs = {f"worker-{n}": watchdog(n, 6, 8) for n in (0, 2)}
    logs["worker-1"] = watchdog(1, 6, 5, waited=False) if says else Tail(["step 12"], [ago(30)])
    tasks = [task(*("Failed" for _ in codes))]
    card = failure_card_of(failed("worker-0", codes, logs, tasks=tasks))
    assert card is not None
    assert card.who == "rank 1 on worker-1"
    last = ": the last that it began was #5" if says else ""
    text = f"rank 1 did not come to ALLREDUCE #6, for which ranks 0, 2 waited 600 s{last}"
    assert text in (card.cause, card.reason)
    assert "runPolicy.hang" in card.remedy
    assert card.replica == "worker-1"


def test_words_of_an_earlier_attempt_are_not_those_of_the_next() -> None:
    """Which the condition goes on to tell where the next failure costs nothing."""
    known = failed("worker-0", {"worker-0": 1}, {})
    text = f"Pod[{pod_name('worker-0')}] exited with error code 2: no checkpoint"
    known.job.obj["status"]["conditions"].append(
        condition("ReplicaFailure", "True", "ErrorInPod", text)
    )
    card = failure_card_of(known)
    assert card is not None
    assert "no checkpoint" not in card.reason
