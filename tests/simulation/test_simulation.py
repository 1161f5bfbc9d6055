"""The controller keeps its promises under every seeded combination of faults.

A failure names its seed, what of its scenario is enough to fail, and how to replay that
(`python -m tests.simulation --seed N`, or `pytest tests/simulation --seed N`). Some seeds are new
for every state of the code. TRAINYARD_SOAK=1 plays ten times as many.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.simulation.__main__ import main
from tests.simulation.invariants import Violation
from tests.simulation.run import LEAST_CALLS, simulate
from tests.simulation.shrink import shrink
from tests.simulation.tally import TALLY, Tally

LEAST_FAULTS, LEAST_REPLICAS = 3, 3
BRANCH_COVERAGE = 95.5
"""Percent of the lines and branches of `lifecycle/` that 180 runs reach; may not fall. It was 96
before hangs, whose rarer verdicts (`hanging.py`, `hang_texts.py`) unit tests hold."""
PAIRS = 140
"""Pairs of a fault and a phase that 150 runs hit; may not fall."""


def test_every_invariant_holds(seeds: Sequence[int]) -> None:
    failures = []
    for number in seeds:
        try:
            report = simulate(number)
        except Violation as violation:
            failures.append(str(violation if failures else shrink(number)))
            continue
        TALLY.add(report)
        assert report.calls >= LEAST_CALLS, report
        assert report.faults >= LEAST_FAULTS, report
        assert report.replicas >= LEAST_REPLICAS, report
    assert not failures, "\n".join(failures)


ONCE_FAILED = {
    12443: "an eviction that met a pause was counted",
    2748: "an elastic job that had lost a replica for good did not restart an evicted one",
    17980: "a clock that jumped back made two incidents of one",
    3192: "failures that were learned of late were two incidents",
    9594: "a job that was resumed when all its replicas had ended was called ill",
    6000030: "a sidecar that was ended with its pod decided by a rule of podFailurePolicy",
    5000624: "a replica that was lost with its node cost a restart, by a rule, as its peer failed",
    676659774: "a rule charged a paused job for the nodes that it lost, without a word of the rule",
    180263089: "a rule failed a job for its init container, and the monitor read its sidecar's end",
    2348: "the exit code of a sidecar was told as that of a replica whose pod was gone",
    222: "an elastic job of which all replicas must succeed waited for one that had failed",
    340: "the phase Resuming, written by somebody else, stood",
    433: "an invalid job that had ended kept the conditions that somebody else wrote",
    452: "a replica that a resize had replaced was told as running, another being restarted",
    1954: "an elastic job that shrank failed twice before a pod came, and the monitor expected one",
    301755391: "two newcomers failed seconds apart, and the monitor took them for one incident",
    77: "containers of a viewer that ended with its pod were told as logs that cannot be fetched",
    358016702: "a job succeeded when a replica was gone, which was told as running and as failed",
    8000635: "a launch was given up by what a silent watch had told, and the monitor missed that",
    812937761: "Services of a job that was gone were created until its silent watch told of it",
    758550509: "a job whose status was forged for a moment had no time to restart as the run ended",
    874106316: "a standby with a silent watch took over, and failures for deletions",
    3499: "a job was deleted by its ttl over and over until the watch told of it",
    1626: "a job was paused as it ended, and the monitor took its Finished Workload for a leak",
    5286926: "a standby whose watch was silent since the job came took it for a new one",
    656505569: "a replica that was lost at a cost failed its job, told as Deleted as it had no pod",
    1728: "a job was paused after it had failed, and the monitor missed that its end is final",
    20206: "a replica lost by a rule, whose end nobody saw, was told as deleted and as failed",
    419970178: "the monitor told equal failures apart by their exit code and the number of the pod",
    419970307: "the same",
    505500882: "an init container and a preflight that ended with the same code were one cause",
    840617974: "what a rule said of a pod taken away beside one that was given up was forgotten",
    976070167: "an eviction beside one that was given up cost a restart",
    728611270: "a controller that took over told a held pod as failed and its container as running",
    413379829: "the same",
    729428208: "an eviction by Kueue was told with the words of a pod that had been refused",
    47664664: "the monitor missed why a job ended that is told again after its status was forged",
    111534949: "a rule's word on a pod taken away was forgotten while others were not heard yet",
    950175734: "the monitor missed that a launch was given up by what a late watch had told",
    88449988: "the monitor missed that a pod may find no node until its job has ended",
    600287938: "a rule judged a pod that was taken away with the admission of its job",
    723155437: "the monitor missed that an elastic replica that hangs is restarted though it runs",
    974728758: "the monitor missed that a replica that was given up had failed in the row",
    280191712: "the monitor missed that a replica that hangs is restarted beside one that failed",
    124952154: "the monitor missed that a request that is lost holds a pass up for half a minute",
    135841666: "the monitor missed that words of ends that another controller heard are awaited",
    999296061: "a replica that restarts alone was ahead of the attempt of its resumed job",
    257067475: "the monitor took for said what a status of an old version was to say",
    807168526: "a restart at no cost, as members had changed, counted as one that costs something",
    98488477: "a replica that was given up as hung was told as failed with exit code 0",
    298712209: "a pod whose creation came late took back that its replica had failed",
    805767100: "what a replica given up as hung answered to its stop cost a restart",
    329665151: "the monitor missed that a replica that was given up had begun the row",
    531328560: "a policy would have restarted a replica, and the limit was 0",
    487010707: "the node of a replica that did badly was named as nothing",
    118: "what left a bad node had ended with an error",
    308475033: "a peer that awaited its next start was told as stopped",
    1284619010: "the monitor missed that a peer that restarts alone had failed too",
    1284619259: "what a peer answered after the end of its job was a failure of its own",
    1284619262: "restarts were told as left when none was",
    1284619318: "the monitor did not know what a card takes from the evidence",
    826718722: "the monitor missed that a launcher without a pod restarts with its workers",
    826718895: "what a pod wrote that was gone unread was told as nothing",
    826718934: "restarts were told as used up when none was made",
    203235069: "the same",
    44490219: "the monitor missed that a rule holds of what clean-up has deleted",
    44490236: "that nothing restarted was told by the code of another replica",
    49490244: "why an earlier launch was given up was quoted as the words of the next",
    814: "words of an earlier attempt were taken for those of the next",
    847: "the monitor did not know that a card says why a pod went that wrote an exception",
    634: "words of a later pod were taken for those of the attempt that its replica had ended",
    1236: "losses that were told as failures were forgotten while clean-up deleted their pods",
    1005: "a peer that failed before it was asked to end with its job was told as stopped",
    247595866: "a peer that was taken away before, and awaited its next start, was told as stopped",
    194526407: "a replica that its node evicted was told as failed",
    194526482: "the monitor missed that a replica was stopped while it prepared",
    194526547: "a job took -7.2 s, as a clock had jumped",
    297297376: "the monitor missed restarts that were given back and counted in one pass",
    545567503: "a pod taken away beside a failure that waits for its cause came as the first one",
    171223918: "a pod held with exit code 138 ended with 1 for a peer lost before it had begun",
    531626574: "the monitor asked what another replica wrote than the one that a card blames",
    553177720: "a rank that worked was said to be in a collective that does not match",
}


@pytest.mark.parametrize("seed", ONCE_FAILED, ids=str)
def test_what_once_failed_holds(seed: int) -> None:
    simulate(seed)


def python(*arguments: str, salt: str = "0") -> str:
    """Standard output of another Python with these arguments."""
    paths = os.pathsep.join(sys.path)
    environment = {**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_faults_meet_all_states_and_most_branches_of_the_planner() -> None:
    measured = json.loads(python("-m", "tests.simulation.measure", "180").splitlines()[-1])
    tally = Tally()
    tally.merge(measured["tally"])
    files = ", ".join(f"{name} {percent:.0f}" for name, percent in measured["files"].items())
    print("\n".join([f"lifecycle/: {measured['percent']:.1f} % ({files})", *tally.lines()]))
    assert measured["percent"] >= BRANCH_COVERAGE
    assert len(tally.hits) >= PAIRS


def test_a_run_is_the_same_each_time() -> None:
    program = "from tests.simulation.run import simulate; print(simulate(17).digest)"
    here = simulate(17).digest
    assert [python("-c", program, salt=salt) for salt in ("1", "2")] == [here, here]


def test_different_seeds_are_different_runs() -> None:
    assert simulate(1).digest != simulate(2).digest


def test_any_seed_is_replayed_by_pytest_and_by_the_command() -> None:
    """12443 is beyond the fixed seeds of a usual run, which skipped it once."""
    output = python("-m", "pytest", "tests/simulation", "-rA", "--seed", "12443", "-k", "invariant")
    assert "1 passed" in output
    assert "skipped" not in output
    assert "seed 12443: every invariant holds" in python(
        "-m", "tests.simulation", "--seed", "12443"
    )


def test_new_seeds_differ_from_run_to_run_and_are_told() -> None:
    first, second = (python("-m", "tests.simulation", "--runs", "2") for _ in range(2))
    assert re.match(r"seeds \d{7,} to \d{7,}\n", first)
    assert first.splitlines()[0] != second.splitlines()[0]


def test_a_diary_tells_pass_by_pass_and_is_the_same_each_time(tmp_path: Path) -> None:
    files = [tmp_path / "first.jsonl", tmp_path / "second.jsonl"]
    for salt, file in enumerate(files):
        python("-m", "tests.simulation", "--seed", "17", "--trace", str(file), salt=str(salt))
    assert files[0].read_bytes() == files[1].read_bytes()
    lines = [json.loads(line) for line in files[0].read_text().splitlines()]
    assert [line["t"] for line in lines] == sorted(line["t"] for line in lines)
    begun = {line["pass"]: line["decided"] for line in lines if "decided" in line}
    done = [line for line in lines if "did" in line]
    for line in done:
        verb, _, name = line["did"].partition(" ")
        decided = begun[line["pass"]]
        if verb == "get":  # whether all is still as it was seen, before something is done
            assert decided["actions"] or "status" in decided, line
            continue
        assert "status" in decided if verb == "status" else name in str(decided["actions"]), line
    ends = [line["pass"] for line in lines if "ended" in line and line not in done]
    assert sorted(ends) == sorted(begun)
    assert any("happened" in line for line in lines)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("no JSON\n", "is no record"),
        ('{"input": {}, "pass": 1}\n', "is no record"),
        ('{"pass": 1, "observed": {}}\n', "holds no pass with what it saw"),
        (None, "is no record"),
    ],
)
def test_a_file_that_cannot_be_replayed_is_refused_with_the_reason(
    content: str | None, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "record"
    if content is not None:
        file.write_text(content)
    assert main(["--replay", str(file)]) == 2
    output = capsys.readouterr()
    assert (output.out, why in output.err, str(file) in output.err) == ("", True, True)
