"""What is read of trainings from what they print: 60 public styles, and what is no position."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainyard.payloads.observer.printed_progress import PrintedProgress

OUTPUTS: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("printed_outputs.yaml").read_text(encoding="utf-8")
)
NOTHING = [
    "Step 1/5: Preparing data",
    "[2/4] Building extension, step 3 of 9",
    "Downloading: step 3/10 loss.bin",
    "Eval step 10/50 loss 0.3",
    "validation: step 7/20, acc 0.9",
    "Resuming from checkpoint at step 500, lr 0.1",
    "loaded checkpoint 'best.pt' (epoch 41)",
    "Best loss 0.2 at epoch 3",
    "step 10 ms, lr 0.1",
    "time per step 12.3ms loss 0.1",
    "epoch time: 12.3 s, loss 0.2",
    "Epoch 12.5s",
    "num_steps=100, lr=0.1",
    "max_steps: 1000\nlr: 0.1",
    "Namespace(batch_size=64, epochs=14, lr=1.0, step=5)",
    "warmup_step 100 lr 0.1",
    "5 epochs, 100 steps per epoch, lr 0.1",
    "multi-step 3 lr 0.1",
    "config: {'epochs': 3, 'step': 100, 'lr': 0.1}",
    "iter_time=0.1 loss=0.2",
    "Sampling:  10%|█         | 100/1000 [00:01<00:09, 99.1it/s]",
    "100%|██████████| 170M/170M [00:04<00:00, 38.1MB/s]",
    " 50%|█████     | 30000/60000 [00:04<00:04, 6012.1img/s]",
    "Testing: 100%|██████████| 10/10 [00:04<00:00, 2.1it/s]",
    "layer3.0.step 4: loss",
    "Version 2.1 of step-1/2 lr",
]


def position(text: str) -> tuple[int, int, float]:
    progress = PrintedProgress()
    for line in text.splitlines():
        progress.read_line(line.strip())
    return progress.step, progress.total, progress.epoch


@pytest.mark.parametrize("output", OUTPUTS, ids=[each["of"] for each in OUTPUTS])
def test_the_position_of_a_public_script_is_read(output: dict[str, Any]) -> None:
    expected = output.get("step", 0), output.get("total", 0), output.get("epoch", -1)
    assert position(output["text"]) == expected


def test_there_are_sixty() -> None:
    assert len({each["of"] for each in OUTPUTS}) >= 60


@pytest.mark.parametrize("text", NOTHING)
def test_what_is_no_position_is_not_read_as_one(text: str) -> None:
    assert position(text) == (0, 0, -1)


def test_a_step_of_an_epoch_is_no_step_of_the_training() -> None:
    assert position("Epoch 1/3\nstep 100/469 loss 0.3\nEpoch 2/3\nstep 7/469 loss 0.2") == (0, 0, 2)
    assert position("step 100 loss 3\nepoch 0 done, loss 2\nstep 600 loss 2") == (600, 0, 0)


def test_a_bar_of_an_evaluation_is_not_added() -> None:
    bar = "{0}%|███| {1}/{2} [00:01<00:01, 4.01it/s]"
    bars = [
        bar.format(50, 5, 10),
        bar.format(100, 10, 10),
        bar.format(50, 2, 4),
        bar.format(9, 1, 10),
    ]
    assert position("\n".join(bars)) == (11, 0, -1)


def test_only_a_training_is_read_and_with_what_it_printed_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "utf-8"))
    monkeypatch.setattr(sys, "stderr", None)
    progress = PrintedProgress()
    progress.listen()
    print("Epoch", 1)
    assert not progress.read_new()
    print("step", 3, end=" ")
    progress.is_training = True
    assert progress.read_new()
    assert progress.epoch == 1
    print("loss 0.3")
    assert not progress.read_new()
    print("\x1b[31mglobal step\x1b[0m 7 loss 0.2")
    assert progress.read_new()
    assert not progress.read_new()
    assert progress.status() == {
        "source": "Output",
        "metrics": [
            {"name": "current_step", "value": "7"},
            {"name": "current_epoch", "value": "1"},
        ],
    }
    sys.stdout.flush()
    assert b"Epoch 1\nstep 3 loss 0.3\n" in sys.stdout.buffer.getvalue()  # type: ignore[attr-defined]
