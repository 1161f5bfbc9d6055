"""Which shells are warned about, since they keep SIGTERM from the training."""

from __future__ import annotations

import pytest

from trainyard.kinds.shared.pods.shell_signal_rules import check_shell


@pytest.mark.parametrize(
    ("words", "program"),
    [
        (["bash", "-c", "python train.py; echo done"], "python"),
        (["bash", "-c", "python train.py && cp out /data"], "python"),
        (["bash", "-c", "python train.py\ntouch done\n"], "python"),
        (["bash", "-c", "python train.py 2>&1 | tee log"], "python"),
        (["bash", "-lc", "cat data | python3.11 train.py"], "python3.11"),
        (["/bin/bash", "-ec", "cd /x; OMP_NUM_THREADS=1 torchrun t.py; rm x"], "torchrun"),
        (["bash", "-c", "for i in 1 2; do python train.py $i; done"], "python"),
        (["bash", "-c", "python train.py & wait"], "python"),
        (["sh", "-c", "python train.py"], "python"),
        (["sh", "-c", "cd /x && /opt/bin/accelerate launch t.py"], "accelerate"),
    ],
)
def test_a_shell_that_stays_above_the_training_is_warned_about(
    words: list[str], program: str
) -> None:
    (found,) = check_shell({"command": words[:1], "args": words[1:]}, ())
    assert f"keeps SIGTERM from {program}," in found.message


@pytest.mark.parametrize(
    "words",
    [
        ["python", "train.py"],
        ["bash", "-c", "python train.py"],
        ["bash", "-c", "cd /x && python train.py > log 2>&1"],
        ["bash", "-c", "pip install x; python train.py &> log"],
        ["sh", "-c", "cd /x && exec python train.py"],
        ["sh", "-c", "mkdir x; OMP_NUM_THREADS=1; exec python train.py 2>&1"],
        ["bash", "-c", "trap 'kill $!' TERM; python train.py & wait"],
        ["bash", "-c", "echo 'python train.py; x' | cat"],
        ["bash", "-c", "echo 'no end"],
        ["bash", "run.sh"],
        ["bash", "-c"],
        ["sh"],
        [],
    ],
    ids=" ".join,
)
def test_others_are_not(words: list[str]) -> None:
    assert not list(check_shell({"command": words}, ()))
