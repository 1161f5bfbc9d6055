"""What is told of a replica's end."""

from __future__ import annotations

from tests.unit.lifecycle.world import World, torchrun

BANNER = "=" * 60
LAST_WORDS = f"""\
Traceback (most recent call last):
ValueError: rate is negative
E1121 16:37:36.5 2 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1)

{BANNER}
train.py FAILED
{"-" * 60}
Root Cause (first observed failure):
[0]:
  exitcode  : 1 (pid: 8)
{BANNER}"""


def test_the_cause_is_told_and_not_torchruns_report_that_follows_it() -> None:
    world = World(torchrun(workers=2, policy="Never")).running()
    world.exit("1", 1, message=LAST_WORDS).settle()
    text = world.condition("ReplicaFailure")[2]  # type: ignore[index]
    assert text.endswith(
        "exited with error code 1: Traceback (most recent call last):\nValueError: rate is negative"
    )


def test_a_kill_that_no_program_can_tell_of_is_named() -> None:
    for code, name in {137: " (SIGKILL)", 143: "", 1: ""}.items():
        world = World(torchrun(workers=2, policy="Never")).running()
        world.exit("1", code, message="step 4 loss 0.4").settle()
        text = world.condition("ReplicaFailure")[2]  # type: ignore[index]
        assert text.endswith(f"exited with error code {code}{name}: step 4 loss 0.4")


def test_that_torch_could_not_write_for_want_of_room_is_told() -> None:
    for said, told in {
        "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534": True,
        "OSError: [Errno 122] Disk quota exceeded: '/out/last.pt'": True,
        "OSError: [Errno 28] No space left on device": False,  # it says so itself
        "ValueError: unexpected pos 1": False,
    }.items():
        world = World(torchrun(workers=2, policy="Never")).running()
        world.exit("1", 1, message=said).settle()
        text = world.condition("ReplicaFailure")[2]  # type: ignore[index]
        assert said in text
        assert text.endswith("a volume or the disk is full.)") == told
