"""What is read out of logs: exceptions, the user's own lines, and whom launchers blame."""

from __future__ import annotations

import random
import time

import pytest

from tests.tools import soak
from tests.unit.diagnosis.captured import names, tail
from trainyard.client.log_tails import Tail
from trainyard.diagnosis.exit_meanings import explain_exit
from trainyard.diagnosis.first_failure import find_final_exception
from trainyard.evidence.launcher_reports import (
    BlamedRank,
    count_lines,
    find_blamed_rank,
    own_lines,
)
from trainyard.evidence.secondary_exceptions import is_secondary
from trainyard.evidence.tracebacks import RaisedException, find_exceptions

PEER = "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553]"
NO_MODULE = "ModuleNotFoundError: No module named 'nosuchpackage'"
NO_FILE = "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.csv'"
BROKEN = ("ValueError: sample 5 is broken", "loader.py:6 in __getitem__")
CASES = {
    "assertion.plain.worker-0": (PEER, "assertion.py:9", "dist.all_reduce(loss)"),
    "assertion.plain.worker-1": ("AssertionError: loss is nan", "assertion.py:8", "assert loss"),
    "assertion.torchrun.worker-0": ("AssertionError: loss is nan", "assertion.py:8", "assert"),
    "assertion.torchrun.worker-1": (PEER, "assertion.py:9", "dist.all_reduce(loss)"),
    "chained.plain.worker-0": ("RuntimeError: the config", "chained.py:5 in read", "raise Runtime"),
    "chained.torchrun.worker-0": ("RuntimeError: the config", "chained.py:5 in read", "raise"),
    "disk.plain.worker-0": ("OSError: [Errno 28] No space left", "disk.py:2", 'out.write("x"'),
    "env.plain.worker-0": ("KeyError: 'LOCAL_RANK'", "env.py:2", "rank = int(os.environ"),
    "group.plain.worker-0": ("OSError: the socket is gone", "group.py:4 in bad", "raise OSError("),
    "group.torchrun.worker-0": ("OSError: the socket is gone", "group.py:4 in bad", "raise OSE"),
    "imports.plain.worker-0": (NO_MODULE, "imports.py:2", "import nosuchpackage.deep"),
    "killed.plain.worker-0": (PEER, "killed.py:8", "dist.all_reduce(loss)"),
    "killed.torchrun.worker-1": (PEER, "killed.py:8", "dist.all_reduce(loss)"),
    "loader.plain.worker-0": (*BROKEN, 'raise ValueError(f"sample {i}'),
    "loader.torchrun.worker-0": (*BROKEN, 'raise ValueError(f"sample {i}'),
    "missing.plain.worker-0": (NO_FILE, "missing.py:1", 'with open("/data/train.csv")'),
    "module.plain.worker-0": ("KeyError: 'momentum'", "helper.py:3 in work", "return table"),
    "oncuda.plain.worker-0": ("AssertionError: Torch not com", "oncuda.py:3", "x = x.cuda()"),
    "port.plain.worker-0": ("OSError: [Errno 98] Address already in use", "port.py:3", "b = sock"),
    "recorded.torchrun.worker-0": ("ValueError: recorded", "recorded.py:6 in main", "raise Value"),
    "segv.plain.worker-1": ("Segmentation fault", "segv.py:4 in crash", ""),
    "segv.torchrun.worker-0": ("Segmentation fault", "segv.py:4 in crash", ""),
    "spawned.plain.worker-0": ("ValueError: spawned rank", "spawned.py:4 in train", "raise Value"),
    "spawned.torchrun.worker-0": ("ValueError: spawned", "spawned.py:4 in train", "raise Value"),
    "syntax.plain.worker-0": ("SyntaxError: invalid syntax", "syntax.py:2", "def f(:"),
    "syntax.torchrun.worker-0": ("SyntaxError: invalid syntax", "syntax.py:2", "def f(:"),
    "world.plain.worker-0": ("DistStoreError: Timed out after", "world.py:3", "dist.init_proc"),
    "world.plain.worker-1": ("DistStoreError: wait timeout", "world.py:3", "dist.init_process"),
}
WORDLESS = ("killed.torchrun.worker-0", "segv_quiet.torchrun.worker-0", "silent.torchrun.worker-0")
"""Whose cause raised nothing; what is there is of peers."""


def the_one(name: str) -> RaisedException:
    found = tail(name)
    raised = find_final_exception(find_exceptions(found.lines), found)
    assert raised is not None
    return raised


@pytest.mark.parametrize("name", CASES)
def test_the_exception_that_ended_a_replica_is_found_with_the_users_line(name: str) -> None:
    raised = the_one(name)
    text, where, source = CASES[name]
    assert raised.text.startswith(text)
    assert raised.place is not None
    assert raised.place.where == where
    assert raised.place.source.startswith(source)


def test_every_capture_is_looked_at() -> None:
    assert {*CASES, *WORDLESS, "words.plain.worker-0"} == {*names()}


def test_what_a_lost_peer_says_follows_from_something_else() -> None:
    following = {name for name in CASES if is_secondary(the_one(name))}
    assert following == {
        "assertion.plain.worker-0",
        "assertion.torchrun.worker-1",
        "killed.plain.worker-0",
        "killed.torchrun.worker-1",
        "world.plain.worker-1",
    }


def test_what_an_exception_followed_from_goes_with_it() -> None:
    root = the_one("chained.plain.worker-0").root
    assert root is not None
    assert root.text == "KeyError: 'lr'"


def test_the_helper_of_a_process_is_named() -> None:
    assert the_one("loader.plain.worker-0").worker == "DataLoader worker process 0"


def test_the_rank_is_read_from_what_torch_puts_before_a_traceback() -> None:
    assert the_one("assertion.plain.worker-1").rank == 1
    assert the_one("imports.plain.worker-0").rank is None


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("killed.torchrun.worker-0", -9),
        ("segv_quiet.torchrun.worker-0", -11),
        ("silent.torchrun.worker-0", 3),
        ("assertion.torchrun.worker-0", 1),
    ],
)
def test_torchruns_report_names_the_rank_and_its_end(name: str, code: int) -> None:
    blamed = find_blamed_rank(tail(name).lines)
    assert blamed is not None
    assert (blamed.rank, blamed.code) == (1, code)
    assert "-worker-0." in blamed.host


def test_a_rank_that_was_asked_to_end_is_not_to_blame() -> None:
    report = [
        "Root Cause (first observed failure):",
        "[0]:",
        "  rank : 3",
        "  exitcode : -15 (pid)",
    ]
    assert find_blamed_rank(report) is None


def test_our_launch_names_the_rank_and_its_replica() -> None:
    lines = ["trainyard: rank 3 on worker-1 failed with exit code 137 (SIGKILL)"]
    assert find_blamed_rank(lines) == BlamedRank("worker-1", 3, 137)
    assert find_blamed_rank(["trainyard: worker-1 was lost: no answer"]) == BlamedRank("worker-1")


def test_the_last_lines_of_a_program_are_no_launchers() -> None:
    lines = own_lines(tail("words.plain.worker-0").lines)
    assert lines[-1] == "no checkpoint in /ckpt: give --resume-from"
    assert own_lines(tail("silent.torchrun.worker-0").lines) == ()
    alone = ["Failures:", "  <NO_OTHER_FAILURES>", "-" * 60, "  rank      : 1 (local_rank: 0)"]
    assert own_lines(alone) == (), "the report where no other rank was there to be ended"
    assert own_lines(["worker-1: error: no data"]) == ("error: no data",)


def test_lines_that_are_tagged_by_their_rank_are_read_as_without() -> None:
    """What ranks say alike is the same, also from one attempt to the next; their names are not."""
    lines = ["worker-0: [rank0]: no data", "[rank3]: frame #1: x", "[rank3]: no data"]
    assert own_lines(lines) == ("no data", "no data")
    assert count_lines(lines, "no data") == 2
    traceback = [
        "Traceback (most recent call last):",
        '  File "t.py", line 3, in f',
        "ValueError: x",
    ]
    (raised,) = find_exceptions([f"worker-1: [rank7]: {line}" for line in traceback])
    assert (raised.rank, raised.text) == (7, "ValueError: x")
    assert explain_exit(1, message="[rank1]: ValueError: x").what.endswith(" with ValueError: x")


def test_lines_of_ranks_that_are_mixed_are_told_apart_by_what_they_begin_with() -> None:
    mixed = [
        "[default0]:Traceback (most recent call last):",
        "[default1]:Traceback (most recent call last):",
        '[default1]:  File "/home/ada/a.py", line 1, in <module>',
        '[default0]:  File "/home/ada/b.py", line 2, in <module>',
        "[default1]:    first()",
        "[default0]:    second()",
        "epoch 1: loss 0.3",
        "[default1]:KeyError: 1",
        "[default0]:ValueError: 2",
    ]
    found = [
        (each.rank, each.text, each.place and each.place.source) for each in find_exceptions(mixed)
    ]
    assert found == [(1, "KeyError: 1", "first()"), (0, "ValueError: 2", "second()")]


def test_an_exception_that_was_logged_is_not_the_one_that_ended_the_program() -> None:
    logged = [
        "ERROR:root:cannot write the metrics",
        "Traceback (most recent call last):",
        '  File "/home/ada/a.py", line 1, in report',
        "    send()",
        "OSError: no route",
    ]
    fatal = [
        "Traceback (most recent call last):",
        '  File "/home/ada/a.py", line 9, in <module>',
        "    step()",
        "ValueError: nan",
    ]
    raised = find_final_exception(find_exceptions([*logged, *fatal]), Tail())
    assert raised is not None
    assert raised.text == "ValueError: nan"


def test_what_was_survived_is_older_than_what_ended_the_program() -> None:
    head = "Traceback (most recent call last):"
    place = '  File "/home/ada/a.py", line 1, in f'
    lines = [head, place, "    f()", "OSError: once", head, place, "    f()", "ValueError: twice"]
    times = ["2026-08-02T12:00:00Z"] * 4 + ["2026-08-02T12:03:00Z"] * 4
    raised = find_final_exception(find_exceptions(lines), Tail(lines, times))
    assert raised is not None
    assert raised.text == "ValueError: twice"


def test_a_traceback_whose_beginning_is_cut_off_is_read_all_the_same() -> None:
    """A termination message has 2 KiB."""
    cut = ["           ^^^^^^", '  File "/home/ada/a.py", line 3, in f', "    g()", "ValueError: x"]
    assert [each.text for each in find_exceptions(cut)] == ["ValueError: x"]


def test_a_message_that_announces_a_second_line_has_it() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/home/ada/a.py", line 3, in <module>',
        "    model.load_state_dict(saved)",
        "RuntimeError: Error(s) in loading state_dict for Net:",
        '\tMissing key(s) in state_dict: "fc.weight".',
    ]
    assert find_exceptions(lines)[0].message.endswith(
        'for Net: Missing key(s) in state_dict: "fc.weight".'
    )


def test_what_cpp_says_before_it_aborts_is_an_exception() -> None:
    lines = [
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "  what():  std::bad_alloc",
    ]
    assert find_exceptions(lines)[0].text == "std::bad_alloc: std::bad_alloc"


def test_a_box_of_rich_is_a_traceback() -> None:
    lines = [
        "╭──────────── Traceback (most recent call last) ────────────╮",
        "│ /home/ada/train.py:5 in <module>                          │",
        "│                                                           │",
        "│   4                                                       │",
        "│ ❱ 5 f(0)                                                  │",
        "╰───────────────────────────────────────────────────────────╯",
        "ZeroDivisionError: division by zero",
    ]
    raised = find_exceptions(lines)[0]
    assert raised.text == "ZeroDivisionError: division by zero"
    assert raised.place is not None
    assert (raised.place.where, raised.place.source) == ("train.py:5", "f(0)")


PIECES = (
    "Traceback (most recent call last):",
    "Original Traceback (most recent call last):",
    "  + Exception Group Traceback (most recent call last):",
    '  File "/a.py", line 1, in f',
    '  File "/a.py", line 99999999999999999999',
    "    source()",
    "    ~~~^^^",
    "ValueError: x",
    "ValueError: Caught KeyError in DataLoader worker process 0.",
    "During handling of the above exception, another exception occurred:",
    "Fatal Python error: Aborted",
    "Current thread 0x1 (most recent call first):",
    "terminate called after throwing an instance of '",
    "Root Cause (first observed failure):",
    "  exitcode  : -15 (pid: 1)",
    "  rank      : 99999999999999999999999",
    "trainyard: rank 1 on worker-0 failed with exit code 1",
    "│ ❱ 5 x",
    "╭── Traceback (most recent call last) ──╮",
    "from user code:",
    "RuntimeError:",
    "RuntimeError: NCCL error in: x",
    "Last error:",
    "  +-+---------------- 1 ----------------",
    "    | ValueError: lr",
    "RuntimeError: DataLoader worker (pid(s) 1) exited unexpectedly",
    "The above exception was the direct cause of the following exception:",
    "  what():  x",
    "[rank1]: ",
    "worker-0: ",
    "\x1b[31m",
    "",
)


def any_log(seed: int) -> list[str]:
    """Pieces of logs in any order and combination, and characters of any kind."""
    chance = random.Random(seed)

    def piece() -> str:
        if chance.random() < 0.8:
            return chance.choice(PIECES)
        return "".join(chr(chance.randrange(1, 0xD7FF)) for _ in range(chance.randrange(20)))

    return [
        "".join(piece() for _ in range(chance.randrange(1, 4))) for _ in range(chance.randrange(80))
    ]


def test_no_log_makes_the_reader_raise() -> None:
    for seed in range(soak(2_000, 100_000)):
        lines = any_log(seed)
        found = find_exceptions(lines)
        find_final_exception(found, Tail(lines))
        find_blamed_rank(lines)
        own_lines(lines)
        for each in found:
            assert each.text, seed
            assert 0 <= each.first <= each.last <= len(lines), seed
            assert each.rank is None or each.rank >= 0, seed


@pytest.mark.parametrize(
    "line",
    [
        "Traceback (most recent call last):",
        '  File "/a.py", line 1, in f',
        " " * 4000,
        "a.b." * 1000 + ": ",
        "[rank1]: [rank1]: " * 200,
        '  File "' * 500,
        "│ " * 1000,
        "Fatal Python error: x",
        "ValueError: " + "x:" * 1000,
    ],
)
def test_twice_the_lines_take_no_more_than_a_few_times_as_long(line: str) -> None:
    """Quadratic would be 64 times as long for eight times as many."""

    def seconds(count: int) -> float:
        lines = [f"{line}{number}" if number % 2 else f"{number} {line}" for number in range(count)]
        start = time.process_time()
        find_final_exception(find_exceptions(lines), Tail(lines))
        find_blamed_rank(lines)
        own_lines(lines)
        return time.process_time() - start

    few = min(seconds(500) for _ in range(3))
    assert seconds(4000) < 30 * few + 0.5
