"""`trainyard run SCRIPT`: from a training script to its end, without a manifest."""

from __future__ import annotations

import asyncio
import os
import re
import venv
from pathlib import Path

import pytest
import yaml

from tests.embedded.command_line import CommandLine, until
from tests.embedded.launching import require_programs
from tests.tools import require, soak
from trainyard.kube.client import Client
from trainyard.kube.resources import CONFIG_MAPS

_SUM = """\
import os, sys
import torch
import torch.distributed as dist

{before}
mine = torch.tensor([1.0 + dist.get_rank()])
dist.all_reduce(mine)
print(f"sum {{mine.item()}} of {{dist.get_world_size()}} with {{sys.argv[1:]}}", flush=True)
dist.destroy_process_group()
"""
_PLAIN = _SUM.format(before='dist.init_process_group("gloo")')
_DEEPSPEED = f"{_PLAIN}\ndef with_zero():\n    import deepspeed\n"
_MODULE = """\
import sys
from pathlib import Path

import yaml

from .model import train

if __name__ == "__main__":
    config = yaml.safe_load((Path(__file__).parent / "conf" / "config.yaml").read_text())
    for override in sys.argv[1:]:
        name, _, value = override.partition("=")
        group, _, key = name.partition(".")
        config[group][key] = yaml.safe_load(value)
    train(config)
"""
_MODEL = """\
import torch
import torch.distributed as dist

def train(config):
    dist.init_process_group("gloo")
    mine = torch.tensor([float(config["optimizer"]["lr"])])
    dist.all_reduce(mine)
    print(f"sum {mine.item()} of {dist.get_world_size()}", flush=True)
    dist.destroy_process_group()
"""


def written(folder: Path, files: dict[str, str]) -> None:
    """Write files, and the folders that they lie in."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def both_ways(trainyard: CommandLine, file: str, *arguments: str) -> str:
    """What a run printed whose manifest is saved, which is the one that `init` proposes; under
    soak, the manifest is run as well."""
    output = trainyard.run("run", "--save", file, *arguments)
    trainyard.run("init", "--save", f"again-{file}", *arguments)
    assert objects(trainyard, file) == objects(trainyard, f"again-{file}")
    if soak(0, 1):
        said = [line for line in output.splitlines() if "] sum " in line]
        rendered = {trainyard.run("render", "-f", name) for name in (file, f"again-{file}")}
        assert len(rendered) == 1
        again = trainyard.run("run", "-f", file)
        assert sorted(said) == sorted(line for line in again.splitlines() if "] sum " in line)
    return output


def objects(trainyard: CommandLine, file: str) -> list[object]:
    """What a manifest holds."""
    return list(yaml.safe_load_all((trainyard.folder / file).read_text()))


def test_scripts_of_four_kinds_run_from_the_command_line_alone(trainyard: CommandLine) -> None:
    require("torchrun")
    written(
        trainyard.folder,
        {
            "plain.py": _PLAIN,
            "my train.py": _PLAIN,
            "app/__init__.py": "",
            "app/train.py": _MODULE,
            "app/model.py": _MODEL,
            "app/conf/config.yaml": "optimizer: {lr: 0.1}\n",
        },
    )
    two = ("--replicas", "2")
    plain = (*two, "--launcher", "plain")
    output = both_ways(trainyard, "a.yaml", *plain, "plain.py", "--lr", "$(X)")
    assert output.splitlines()[0].startswith("Python ")
    assert "plain: launcher plain; 2 replicas" in output
    assert output.count("sum 3.0 of 2 with ['--lr', '$(X)']") == 2
    output = both_ways(trainyard, "b.yaml", *two, "my train.py", "a  b", "--", "-m")
    assert "my-train: launcher torchrun, because it imports torch; 2 replicas" in output
    assert output.count("sum 3.0 of 2 with ['a  b', '--', '-m']") == 2
    output = both_ways(trainyard, "c.yaml", *plain, "-m", "app.train", "optimizer.lr=0.5")
    assert output.count("sum 1.0 of 2") == 2


_APART = """\
import pathlib, time
import torch

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
until = time.monotonic() + 300
while not pathlib.Path("told").exists() and time.monotonic() < until:
    optimizer.zero_grad()
    model(torch.ones(4, 8)).mean().backward()
    optimizer.step()
    time.sleep(0.05)
"""
_SPAWNS = """\
import os, pathlib, time
import torch.distributed as dist
import torch.multiprocessing as mp

def work(rank, size):
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meet-{os.environ['RANK']}",
        rank=rank, world_size=size)
    until = time.monotonic() + 300
    while not pathlib.Path("told").exists() and time.monotonic() < until:
        time.sleep(0.1)
    os._exit(0)

if __name__ == "__main__":
    mp.spawn(work, args=(2,), nprocs=2)
"""


def test_ranks_that_never_met_are_told_when_the_job_has_succeeded(trainyard: CommandLine) -> None:
    """As with a trainer that was given one process: nothing in a script says so beforehand."""
    require("torchrun")
    told = "No process group of torch.distributed was made: each of the 2 ranks works on its own"
    each = "import torch.distributed as dist\n"
    # Who leaves before another has connected makes that one fail.
    meets = f"{each}dist.init_process_group('gloo')\ndist.barrier()\ndist.destroy_process_group()\n"
    written(trainyard.folder, {"alone.py": each, "meets.py": meets})
    alone = trainyard.run("run", "--replicas", "2", "alone.py")
    assert f"warning: {told}" in alone
    assert "note:" not in alone
    assert "No process group" not in trainyard.run("run", "--replicas", "2", "meets.py")
    plain = trainyard.run("run", "--replicas", "2", "--launcher", "plain", "alone.py")
    assert told not in plain  # who starts ranks alone may want them to share work by their numbers


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (_APART, "No process group of torch.distributed was made: each of the 2 ranks"),
        (_SPAWNS, "of 2: their process groups are not the same"),
    ],
    ids=["alone", "spawn"],
)
def test_ranks_that_train_apart_are_told_while_they_do(
    trainyard: CommandLine, script: str, told: str
) -> None:
    require("torchrun")
    written(trainyard.folder, {"train.py": script})
    with trainyard.running("run", "--replicas", "2", "train.py") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("warning: "):
                assert told in line
                (trainyard.folder / "told").touch()
                break
        assert "train: Succeeded" in process.stdout.read()


def test_a_deepspeed_script_runs_from_the_command_line_alone(trainyard: CommandLine) -> None:
    require_programs("deepspeed", "sshd", "ssh")
    written(trainyard.folder, {"train.py": _DEEPSPEED})
    output = both_ways(trainyard, "d.yaml", "train.py", "a b", "$X")
    assert "launcher deepspeed, because it imports deepspeed; 1 replica\n" in output
    assert len(re.findall(r"sum 1.0 of 1 with \[.*'a b', '\$X'\]", output)) == 1


_PRINTS = """\
import pathlib, sys, time
import torch

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
until = time.monotonic() + 300
step = 0
while not pathlib.Path("told").exists() and time.monotonic() < until:
    optimizer.zero_grad()
    model(torch.ones(4, 8)).mean().backward()
    optimizer.step()
    step += 1
    print(f"iter {step}: loss 0.5", file=sys.stderr)
    time.sleep(0.05)
"""


def test_progress_that_a_script_prints_is_listed(trainyard: CommandLine) -> None:
    require("torchrun")
    written(trainyard.folder, {"train.py": _PRINTS})
    trainyard.run("run", "-d", "train.py")
    until(lambda: " step " in trainyard.run("list"), "the step is in the list")
    (trainyard.folder / "told").touch()
    trainyard.run("wait", "train")
    assert yaml.safe_load(trainyard.run("show", "train", "-o", "yaml"))["status"]["progress"][
        "source"
    ] == ("Output")


def test_mpirun_starts_what_it_is_asked_to(trainyard: CommandLine) -> None:
    require_programs("mpirun", "sshd", "ssh")
    told = "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname) with $A$1"
    written(trainyard.folder, {"tell.sh": f'echo "{told}"\n'})
    run = ("--launcher", "mpi", "--replicas", "2", "--procs-per-replica", "2", "--env", "A=x")
    output = trainyard.run("run", *run, "tell.sh", " y  z")
    said = {line.partition("] ")[2] for line in output.splitlines() if "] rank" in line}
    assert said == {f"rank {n} of 4 on worker-{n // 2} with x y  z" for n in range(4)}


def test_any_program_runs_with_folders_variables_and_restarts(trainyard: CommandLine) -> None:
    written(
        trainyard.folder,
        {
            "work/go.sh": 'echo "$A" >> /out/seen; test "$(wc -l < /out/seen)" -ge 2 || exit 3\n',
            "tell.py": "import os\nprint(os.environ['RANK'], os.getcwd(), __file__)\n",
        },
    )
    output = trainyard.run(
        *("run", "--env", "A=x $(RANK)", "--volume", "out:/out", "--restart", "2", "work/go.sh")
    )
    assert "GenericJob go: Succeeded" in output
    assert (trainyard.folder / "out" / "seen").read_text() == "x $(RANK)\nx $(RANK)\n"
    (trainyard.folder / "elsewhere").mkdir()
    trainyard.run("run", "--save", "elsewhere/job.yaml", "tell.py")
    output = trainyard.run("run", "elsewhere/job.yaml", "--isolation", "plain")
    assert f"[worker-0] 0 {trainyard.folder} " in output, "options may follow a manifest"


def test_a_shell_script_has_a_rank_and_as_many_open_files_as_are_allowed(tmp_path: Path) -> None:
    """A login has a low soft limit, and a container on Kubernetes none but the hard one."""
    line = CommandLine(tmp_path, wrapper=("prlimit", "--nofile=1024:15000"))
    written(tmp_path, {"ranks.sh": 'echo "rank $RANK of $WORLD_SIZE: $(ulimit -Sn) files"\n'})
    try:
        output = line.run("run", "--launcher", "plain", "--replicas", "2", "ranks.sh")
    finally:
        line.kill_everything()
    assert "[worker-0] rank 0 of 2: 15000 files" in output


def test_a_module_that_is_missing_is_said_before_anything_starts(trainyard: CommandLine) -> None:
    written(trainyard.folder, {"train.py": "print('started')\nimport no_such_module\n"})
    output = trainyard.run("run", "train.py", code=1)
    assert output.startswith("error: train.py imports no_such_module, which is not installed for /")
    assert "started" not in output
    (trainyard.folder / "train.py").write_text(
        "if 0:\n    pass\nprint('ran', flush=True)\n1 +* 2\n"
    )
    assert "error: train.py:4: SyntaxError" in trainyard.run("run", "train.py", code=1)
    venv.create(trainyard.folder / "bare")
    (trainyard.folder / "train.py").write_text("import nosuch\n")
    options = ("--image", f"*={trainyard.folder / 'bare'}", "--launcher", "torchrun")
    output = trainyard.run("run", *options, "train.py", code=1)
    assert output.startswith(
        "error: train.py imports nosuch, and the launcher torchrun needs torch, which are not "
    )


def test_options_of_scripts_are_refused_beside_a_manifest(trainyard: CommandLine) -> None:
    written(trainyard.folder, {"job.yaml": "", "train.py": ""})
    assert "no place beside job.yaml" in trainyard.run("run", "job.yaml", "--replicas", "2", code=2)
    assert "one too many" in trainyard.run("run", "-f", "job.yaml", "train.py", code=2)
    assert "name a script" in trainyard.run("run", code=2)


def test_a_script_is_carried_to_a_cluster_of_a_kubeconfig(trainyard: CommandLine) -> None:
    written(trainyard.folder, {"train.py": "import os\nprint('rank', os.environ['RANK'])\n"})
    trainyard.run("up")
    try:
        config = trainyard.run("kubeconfig").strip()
        there = ("--kubeconfig", config)
        assert "--image IMAGE" in trainyard.run("run", *there, "train.py", code=1)
        run = ("run", *there, "--image", "any", "--replicas", "2", "--name", "far", "train.py")
        output = trainyard.run(*run)
        assert "[worker-1] rank 1" in output
        assert "it stays: trainyard delete far -n default --kubeconfig " in output
        assert "far" in trainyard.run("list")
        text = saved(trainyard)
        assert "far already exists" in trainyard.run(*run[:-1], "train.py", code=1)
        trainyard.run("submit", "--replace", *there, "-f", text)
        until(lambda: "Succeeded" in trainyard.run("list"), "the job in the other's place")
        assert config_maps(config) == ["far-script"]
        trainyard.run("delete", "far")
        until(lambda: config_maps(config) == [], "its script goes with the job")
        assert "[worker-0] rank 0" in trainyard.run("run", *there, "-f", text)
    finally:
        trainyard.run("down")


def config_maps(kubeconfig: str) -> list[str]:
    """The names of those in the default namespace."""

    async def ask() -> list[str]:
        async with await Client.from_kubeconfig(kubeconfig) as client:
            found, _ = await client.list(CONFIG_MAPS, "default")
            return [each["metadata"]["name"] for each in found]

    return asyncio.run(ask())


def saved(trainyard: CommandLine) -> str:
    """A manifest for a cluster, which carries the script."""
    new = ("--name", "far", "--save", "far.yaml", "train.py")
    trainyard.run("init", "--for-cluster", "--image", "any", *new)
    text = (trainyard.folder / "far.yaml").read_text()
    objects = list(yaml.safe_load_all(text))
    assert [each["kind"] for each in objects] == ["ConfigMap", "PyTorchTrainingJob"]
    assert objects[0]["data"]["train.py"] == (trainyard.folder / "train.py").read_text()
    return "far.yaml"


def test_a_script_outside_of_the_working_folder_is_found(
    trainyard: CommandLine, tmp_path: Path
) -> None:
    here = Path(os.getcwd())
    written(tmp_path, {"there/tell.py": "import os\nprint('from', os.getcwd())\n"})
    line = CommandLine(tmp_path, start_in=here)
    output = line.run("run", str(tmp_path / "there" / "tell.py"))
    assert f"[worker-0] from {here}" in output


def test_a_detached_script_is_left_to_the_cluster(trainyard: CommandLine) -> None:
    """The first of them starts the cluster."""
    (trainyard.folder / "long.py").write_text("import time\ntime.sleep(600)\n")
    try:
        said = trainyard.run("run", "-d", "--name", "long", "long.py")
        assert said.endswith("default/long created; to follow it: trainyard logs -f long\n")
        trainyard.run("wait", "long", "--for", "phase=Running")
        said = trainyard.run("run", "-d", "-n", "team", "--name", "other", "long.py")
        followed = said.rpartition("to follow it: trainyard ")[2].split()
        assert followed == ["logs", "-f", "other", "-n", "team"]
        trainyard.run("logs", *followed[2:])
        again = trainyard.run("run", "--detach", "--name", "long", "long.py", code=1)
        assert "already" in again
    finally:
        trainyard.run("down")
