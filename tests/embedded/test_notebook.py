"""A notebook: its kernel has an event loop of its own, and functions come from its cells."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest

from tests.embedded.command_line import PATIENCE_SECONDS, CommandLine, until

_CELLS = (
    """\
from dataclasses import dataclass

import torch
import torch.distributed as dist

import trainyard


@dataclass
class Config:
    steps: int
    rate: float = 0.1
""",
    """\
def train(config):
    dist.init_process_group("gloo")
    model = torch.nn.Linear(2, 1)
    for step in range(config.steps):
        model.zero_grad()
        model(torch.ones(4, 2)).pow(2).mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.data -= config.rate * parameter.grad
    print("trained", flush=True)
    world = dist.get_world_size()
    dist.destroy_process_group()
    return world, config
""",
    "world, config = trainyard.run(train, (Config(steps=2),), replicas=4)\n(world, config)",
    """\
def fail():
    raise LookupError("of a replica")

try:
    trainyard.run(fail)
except LookupError as error:
    told = repr(error.__cause__)
'raise LookupError("of a replica")' in told
""",
)


def test_a_function_is_trained_on_four_replicas_from_a_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = CommandLine(tmp_path)
    for name in ("TRAINYARD_STATE_DIR", "PYTHON_MARK_OF_TEST"):
        monkeypatch.setenv(name, line.environment[name])
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in _CELLS])
    client = nbclient.NotebookClient(
        notebook,
        timeout=PATIENCE_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    try:
        client.execute()
        shown = notebook.cells[2].outputs
        values = [output for output in shown if output.output_type == "execute_result"]
        assert values[0].data["text/plain"] == "(4, Config(steps=2, rate=0.1))"
        tables = [
            output.data["text/html"]
            for output in shown
            if output.get("display_id") or output.output_type == "display_data"
        ]
        assert "Succeeded" in tables[0]
        assert all(f"worker-{rank}" in tables[0] for rank in range(4))
        assert "<script" not in tables[0]
        text = "".join(output.text for output in shown if output.output_type == "stream")
        assert "[worker-3] trained" in text
        assert notebook.cells[3].outputs[-1].data["text/plain"] == "True"
        until(
            lambda: not line.processes("trainyard.cli.private_cluster_process"),
            "the clusters have ended",
        )
    finally:
        line.kill_everything()
