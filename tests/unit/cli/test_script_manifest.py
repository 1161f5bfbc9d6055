"""What `run` and `init` understand of a command line with a script, and what they say of mistakes.

`init` does all that `run` does before anything is started.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml
from click.testing import CliRunner

from trainyard.api.scripts.script_shape import ScriptShape
from trainyard.cli.main import cli
from trainyard.kinds.shared.script import HIDING_RANKS
from trainyard.payloads.observer.rank_state import OWN_RANK
from trainyard.schema.errors import TrainyardError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with scripts, in which one stands."""
    files = {
        "train.py": "import torch\n",
        "plain.py": "import os\n",
        "uses.py": "import own\n",
        "own.py": "import torch.distributed\n",
        "missing.py": "import os, nothing_of_that_name\nimport other_absent.part\n",
        "finds.py": "import sys\nsys.path.append('x')\nimport nothing_of_that_name\n",
        "broken.py": "import os\ndef f(:\n",
        "pack/__init__.py": "",
        "pack/train.py": "from .net import f\n",
        "pack/net.py": "import torch\n",
        "whole/__main__.py": "import torch\n",
        "whole/__init__.py": "",
        "sub/my train.py": "import os\n",
        "run.sh": "echo hello\n",
        "note.ipynb": "{}",
        "data.csv": "1\n",
        "windows.sh": "#!/bin/sh\r\necho hello\r\n",
        "knows.py": "import argparse\nargparse.ArgumentParser().add_argument('--gpus')\n"
        "class Fields:\n    name: str = ''\ndef main(env, save): ...\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with ZipFile(tmp_path / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", "import torch\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)  # as who runs the tests may not have it active
    return tmp_path


def made(*arguments: str) -> tuple[dict[str, Any], str]:
    """The job that `init` proposes, and what it says of it."""
    result = CliRunner().invoke(cli, ["init", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return list(yaml.safe_load_all(result.stdout))[-1], result.stderr


def refused(*arguments: str) -> str:
    """What is said of a mistake."""
    result = CliRunner().invoke(cli, ["init", *arguments])
    if isinstance(result.exception, TrainyardError):
        return str(result.exception)
    assert result.exit_code == 2, result.output
    return result.output


def container(job: dict[str, Any]) -> dict[str, Any]:
    """Of the first type of replica."""
    found: dict[str, Any] = job["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    return found


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train.py", "--replicas", "7"), ["train.py", "--replicas", "7"]),
        (("--", "train.py", "-x"), ["train.py", "-x"]),
        (("train.py", "--", "-x"), ["train.py", "--", "-x"]),
        (("train.py", "--name=x", "--help"), ["train.py", "--name=x", "--help"]),
        (("-m", "pack.train", "lr=0.1", "-m"), ["-m", "pack.train", "lr=0.1", "-m"]),
        (("-m", "whole", "--replicas", "7"), ["-m", "whole", "--replicas", "7"]),
    ],
)
def test_what_follows_the_script_is_the_scripts(
    arguments: tuple[str, ...], words: list[str]
) -> None:
    job, _ = made("--replicas", "2", *arguments)
    assert container(job)["args"] == words
    assert job["spec"]["replicaSpecs"][0]["replicas"] == 2


@pytest.mark.parametrize(
    ("arguments", "kind", "told"),
    [
        (
            ("--replicas", "2", "train.py"),
            "PyTorchTrainingJob",
            "launcher torchrun, because it imports torch",
        ),
        (
            ("--elastic", "1:2", "uses.py"),
            "PyTorchTrainingJob",
            "launcher torchrun, because it imports torch",
        ),
        (
            ("--gpus", "2", "-m", "pack.train"),
            "PyTorchTrainingJob",
            "launcher torchrun, because it imports torch",
        ),
        (
            ("--replicas", "2", "plain.py"),
            "PyTorchTrainingJob",
            "launcher plain, because it imports nothing of torch",
        ),
        (("train.py",), "PyTorchTrainingJob", "launcher plain, because it is one process"),
        (("app.pyz",), "PyTorchTrainingJob", "launcher torchrun, because it is an archive"),
        (("run.sh",), "GenericJob", "launcher none, because it is no Python script"),
        (("--launcher", "deepspeed", "plain.py"), "DeepSpeedJob", "launcher deepspeed;"),
        (("--launcher", "colossalai", "plain.py"), "ColossalAIJob", "launcher colossalai;"),
        (("--procs-per-replica", "2", "plain.py"), "PyTorchTrainingJob", "launcher torchrun, bec"),
    ],
)
def test_the_launcher_is_guessed_and_said(arguments: list[str], kind: str, told: str) -> None:
    job, said = made(*arguments)
    assert job["kind"] == kind
    assert told in said


_ONE_PROCESS = {
    "import torch": "plain",
    "import transformers": "plain",
    "import os; ddp = int(os.environ.get('RANK', -1)) != -1; import torch.distributed": "plain",
    "import os; os.getenv('LOCAL_RANK'); dist.init_process_group(); import torch": "plain",
    "import torch\nfrom os import environ as e\nif 'RANK' in os.environ: f(e['RANK'])": "plain",
    "import os, torch; rank = int(os.environ['RANK'])": "torchrun",
    "import os, torch; os.environ.get('RANK', 0); dist.init_process_group()": "torchrun",
    "import os, torch; os.environ['HOME']; {}.get('RANK'); open('RANK').get('RANK')": "plain",
}


@pytest.mark.parametrize(("text", "launcher"), _ONE_PROCESS.items())
def test_one_process_gets_a_launcher_and_a_rank_only_if_it_wants_them(
    folder: Path, text: str, launcher: str
) -> None:
    (folder / "one.py").write_text(text)
    job, told = made("one.py")
    assert f"one: launcher {launcher}, because" in told
    hidden = container(job).get("command", [])[: len(HIDING_RANKS)] == HIDING_RANKS
    assert hidden == (launcher == "plain")
    assert f"{OWN_RANK}=0" in HIDING_RANKS
    for options in (("--launcher", "plain"), ("--launcher", "torchrun"), ("--replicas", "2")):
        job, _ = made(*options, "one.py")
        assert container(job).get("command", [])[:1] != ["env"]


def test_one_process_that_wants_a_rank_and_no_torch_gets_the_rank_alone(folder: Path) -> None:
    (folder / "one.py").write_text("import os\nprint(os.environ['RANK'])\n")
    job, told = made("one.py")
    assert "one: launcher plain, because it imports nothing of torch" in told
    assert container(job)["command"] == ["python", "one.py"], "nothing hides the rank"


def test_a_number_is_no_namespace() -> None:
    result = CliRunner().invoke(cli, ["run", "-n", "4", "train.py"])
    assert result.exit_code == 2
    assert "did you mean --replicas 4?" in result.output


def test_options_behind_the_script_that_it_does_not_know_are_remarked_on() -> None:
    _, said = made("train.py", "--replicas", "7", "--lr", "1")
    notes = [line for line in said.splitlines() if line.startswith("note: ")]
    (note,) = notes
    assert note.startswith("note: --replicas stands behind train.py and is passed to it; ")
    assert note.endswith(" --replicas 7 train.py")
    _, said = made("-m", "pack.train", "--name", "a b", "--no-check", "--queue=q", "x", "--name=c")
    assert "--name, --no-check, --queue stands behind pack.train" in said
    assert "--name 'a b' --no-check --queue=q --name=c -m pack.train" in said
    assert "note" not in made("knows.py", "--gpus", "2", "--name", "x", "--env=y", "--save=z")[1]
    assert "stands" not in made("--replicas", "2", "train.py", "--lr", "1", "-n", "4")[1]
    assert "note" not in made("train.py", "--", "--name", "x")[1]
    assert "--name train.py" in made("train.py", "--name")[1]


_NANO_GPT = """
import os, torch
from model import GPT
from torch.distributed import init_process_group
if int(os.environ.get("RANK", -1)) != -1:
    init_process_group(backend="gloo")
def from_pretrained():
    from transformers import GPT2LMHeadModel
"""


@pytest.mark.parametrize(
    "text",
    [
        _NANO_GPT,
        "from accelerate import Accelerator\nAccelerator(cpu=args.cpu)\n",
        "from transformers import Trainer\nTrainer().train()\n",
        "import torch\nfor step in range(9):\n    optimizer.step()\n",
    ],
)
def test_nothing_is_said_beforehand_of_what_is_seen_at_run_time(folder: Path, text: str) -> None:
    (folder / "one.py").write_text(text)
    assert "note" not in made("--no-check", "--replicas", "2", "--gpus", "0", "one.py")[1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "from mpi4py import MPI\nimport numpy\n",
            "launcher mpi, because it imports mpi4py; 2 rep",
        ),
        (
            "import torch\nfrom mpi4py import MPI\n",
            "launcher mpi, because it imports mpi4py; 2 rep",
        ),
        (
            "try:\n    from mpi4py import MPI\nexcept ImportError: pass\n",
            "launcher plain, because it",
        ),
        ("import mpi4py\nimport torch\ndist.init_process_group()\n", "launcher torchrun, because"),
    ],
)
def test_what_imports_mpi4py_is_started_by_mpirun(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    (folder / "mpirun").write_text("#!/bin/sh\n")
    (folder / "mpirun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    (folder / "one.py").write_text(text)
    assert told in made("--no-check", "--replicas", "2", "one.py")[1]
    assert "launcher mpi" not in made("--no-check", "one.py")[1]


def test_mpirun_starts_a_process_for_each_slot(folder: Path) -> None:
    words = ("--no-check", "--launcher", "mpi", "--replicas", "2", "--procs-per-replica", "3")
    job, _ = made(*words, "train.py", "--name", "a b")
    assert job["kind"] == "DeepSpeedJob"
    assert job["spec"]["config"]["slotsPerWorker"] == 3
    last = job["spec"]["config"]["customCommand"].splitlines()[-1]
    assert last.startswith('mpirun --hostfile "$TRAINYARD_HOSTFILE" -n 6 --bind-to none python')
    assert last.endswith(" train.py --name 'a b'")


def test_a_missing_mpirun_is_told_before_the_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "one.py").write_text("from mpi4py import MPI\n")
    monkeypatch.setenv("PATH", str(folder))
    _, told = made("--no-check", "--replicas", "2", "one.py")
    assert "launcher plain, because there is no mpirun, without which mpi4py finds one proc" in told


@pytest.mark.parametrize("replicas", ["1", "2"])
def test_a_script_that_spawns_its_processes_is_started_as_it_is(
    folder: Path, replicas: str
) -> None:
    text = "import torch.multiprocessing as mp\ninit_process_group()\nmp.spawn(work, nprocs=2)\n"
    (folder / "one.py").write_text(text)
    _, said = made("--replicas", replicas, "one.py")
    assert "one: launcher plain, because it " in said


def test_what_stands_behind_the_script_is_remarked_on_at_stderr() -> None:
    given = ["--save", "nowhere/m.yaml", "plain.py", "--name", "x"]
    command = [sys.executable, "-m", "trainyard", "run", *given]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr.count("note: --name stands behind plain.py") == 1
    assert "trainyard run --name x plain.py" in done.stderr
    assert "cannot write nowhere/m.yaml" in done.stderr
    assert done.stdout == ""


def test_a_job_is_called_after_its_script() -> None:
    names = {
        "train.py": "train",
        "sub/my train.py": "my-train",
        "-m pack.train": "train",
        "--name x train.py": "x",
    }
    for words, name in names.items():
        arguments = [words] if " " in words and words[0] != "-" else words.split()
        assert made(*arguments)[0]["metadata"]["name"] == name


def test_gpus_are_shared_out_and_one_process_is_started_on_each() -> None:
    pretended = ("--resource", "nvidia.com/gpu=8")
    job, said = made(*pretended, "--replicas", "4", "train.py")
    assert container(job)["resources"] == {"limits": {"nvidia.com/gpu": 2}}
    assert job["spec"]["torchrunConfig"]["procPerNode"] == "2"
    assert "4 replicas, each with 2 GPUs and 2 processes\n" in said
    job, said = made(*pretended, "--gpus", "1", "train.py")
    assert "1 replica with 1 GPU\n" in said
    job, said = made("--procs-per-replica", "2", "train.py")
    assert "1 replica with 2 processes\n" in said
    job, _ = made(*pretended, "--gpus", "0", "train.py")
    assert "resources" not in container(job)


def test_processors_are_shared_out_where_nobody_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    share = max(len(os.sched_getaffinity(0)) // 2, 1)
    two = ("--replicas", "2", "train.py")
    assert container(made(*two)[0])["env"] == [{"name": "OMP_NUM_THREADS", "value": str(share)}]
    job, _ = made("--env", "OMP_NUM_THREADS=7", *two)
    assert container(job)["env"] == [{"name": "OMP_NUM_THREADS", "value": "7"}]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert "env" not in container(made(*two)[0])


def test_folders_and_claims_are_mounted(folder: Path) -> None:
    volumes = ("--volume", "out:/out", "--volume", "sets=in", "--volume", "sets:/in")
    job, _ = made(*volumes, "train.py")
    pod = job["spec"]["replicaSpecs"][0]["template"]["spec"]
    sources = [{k: v for k, v in each.items() if k != "name"} for each in pod["volumes"]]
    assert sources[0] == {"hostPath": {"path": str(folder / "out")}}
    assert sources[1] == {"persistentVolumeClaim": {"claimName": "sets"}}
    assert (folder / "out").is_dir()
    arguments = ("--for-cluster", "--image", "any", "--volume", "sets:/in", "train.py")
    text = CliRunner().invoke(cli, ["init", *arguments]).stdout
    assert "\n# Run it:  trainyard run --context CONTEXT -f FILE\n" in text
    job, _ = made(*arguments)
    pod = job["spec"]["replicaSpecs"][0]["template"]["spec"]
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "sets"}


def test_what_a_script_imports_is_looked_up_before_it_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "stands-in" / "torch").mkdir(parents=True)  # for Pythons that have none
    for name in ("__init__.py", "distributed.py", "version.py"):
        (folder / "stands-in" / "torch" / name).touch()
    paths = [str(folder / "stands-in"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    _, said = made("missing.py")
    assert "warning: missing.py imports nothing_of_that_name, other_absent, which are not" in said
    for quiet in (("--no-check", "missing.py"), ("finds.py",), ("uses.py",), ("train.py",)):
        assert "warning" not in made(*quiet)[1]
    assert "imports absent_package" in made("-m", "absent_package.train")[1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("trian.py",), "cannot read trian.py: no such file; did you mean train.py?"),
        (("sub",), "sub is a folder: name the script in it, such as sub/my train.py"),
        (("whole",), "whole is a folder: run it with -m whole"),
        (("note.ipynb",), "note.ipynb is a notebook, which cannot run by itself"),
        (("data.csv",), "data.csv is neither a Python script"),
        (("windows.sh",), "windows.sh has the line ends of Windows"),
        (("/dev/null",), "/dev/null is no file that could be read more than once"),
        (("",), "the name of the script is empty"),
        (("--nproc_per_node=2", "train.py"), "Did you mean --procs-per-replica?"),
        (("--nnodes", "2", "train.py"), "Did you mean --replicas?"),
        (("--workers=2", "train.py"), "Did you mean --replicas?"),
        (("--np", "2", "train.py"), "Did you mean --procs-per-replica?"),
        (("--for-cluster", "--image", "i", "app.pyz"), "app.pyz is an archive"),
        (("python", "train.py"), "leave python out: name the script itself"),
        (("torchrun", "train.py"), "leave torchrun out: name the script itself"),
        (("broken.py",), "broken.py:2: SyntaxError: "),
        (("-m", "pack"), "pack is a package without a __main__.py"),
        (("-m", "pack/train.py"), "-m takes the name of a module, not a path: -m pack.train"),
        (("--launcher", "torchrun", "run.sh"), "run it with --launcher none"),
        (("--for-cluster", "train.py"), "--image IMAGE"),
        (("--for-cluster", "--image", "i", "uses.py"), "imports own from its folder"),
        (("--image", "other=/usr", "train.py"), "/usr is no Python environment"),
        (("--elastic", "4:2", "train.py"), "is not of the form MIN:MAX"),
        (("--elastic", "2:4", "--replicas", "5", "train.py"), "not within --elastic 2:4"),
        (("--env", "=x", "train.py"), "is not of the form NAME=VALUE"),
        (("--env", "NOT_SET_ANYWHERE", "train.py"), "NOT_SET_ANYWHERE is not set here"),
        (("--timeout", "soon", "train.py"), "is not a duration"),
        (("--volume", "a:b", "train.py"), "neither CLAIM=DIR nor DIR:/MOUNTPATH"),
        (("--image", "./sub", "train.py"), "write '*=./sub'"),
        (("--name", "Ä", "--save", "no/such/folder.yaml", "train.py"), "cannot write no/such/"),
        (("plain.py", "--name", "a\udcffb"), "'a\\udcffb' is not UTF-8 text"),
    ],
)
def test_a_mistake_is_told_with_what_to_do(arguments: tuple[str, ...], told: str) -> None:
    assert told in refused(*arguments)


def test_what_is_there_is_never_overwritten(folder: Path) -> None:
    made_once = CliRunner().invoke(cli, ["init", "--save", "job.yaml", "train.py"])
    assert made_once.exit_code == 0
    assert "job.yaml written; run it: trainyard run -f job.yaml" in made_once.stderr
    assert CliRunner().invoke(cli, ["init", "--save", "job.yaml", "train.py"]).exit_code == 0
    assert "exists and says something else" in refused("--save", "job.yaml", "plain.py")


def test_a_manifest_with_a_secret_is_for_its_owner_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file, words, mode in (
        ("a.yaml", ["--env", "LR=1", "train.py"], 0o644),
        ("b.yaml", ["--env", "HF_TOKEN=hunter2", "train.py"], 0o600),
        ("c.yaml", ["train.py", "--api-key", "hunter2"], 0o600),
    ):
        words = ["init", "--save", file, *words]
        monkeypatch.setattr(sys, "argv", ["trainyard", *words])
        assert CliRunner().invoke(cli, words).exit_code == 0
        assert (folder / file).stat().st_mode & 0o777 == mode
        (folder / file).chmod(0o644)
        assert CliRunner().invoke(cli, words).exit_code == 0
        assert (folder / file).stat().st_mode & 0o777 == mode, "of a file that was there too"
    heading, *rest = (folder / "b.yaml").read_text().splitlines()
    assert "HF_TOKEN=***" in heading
    assert any("hunter2" in line for line in rest), "what runs has it"


def test_a_variable_of_the_shell_goes_by_a_secret(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for those by which programs and libraries are found; no file has its value."""
    for name, value in (("MY_WORD", "hunter2"), ("HF_TOKEN", "hunter3"), ("PYTHONPATH", "/x")):
        monkeypatch.setenv(name, value)
    names = ["--env", "MY_WORD", "--env", "HF_TOKEN", "--env", "PYTHONPATH"]
    for cluster in ([], ["--for-cluster", "--image", "python"]):
        words = ["init", *cluster, "--save", "job.yaml", *names, "plain.py"]
        result = CliRunner().invoke(cli, words, catch_exceptions=False)
        assert "warning" not in result.output
        text = (folder / "job.yaml").read_text()
        assert "hunter" not in text
        assert (folder / "job.yaml").stat().st_mode & 0o777 == 0o644
        *_, secret, job = yaml.safe_load_all(text)
        (folder / "job.yaml").unlink()
        assert secret == {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": "plain-env",
                "annotations": {
                    "trainyard.dev/script-of": "plain",
                    "trainyard.dev/values-from-shell": "MY_WORD,HF_TOKEN",
                },
            },
        }
        references = {
            name: {"secretKeyRef": {"name": "plain-env", "key": name}}
            for name in ("MY_WORD", "HF_TOKEN")
        }
        variables = container(job)["env"]
        assert variables == [
            {"name": "PYTHONPATH", "value": "/x"},
            *({"name": name, "valueFrom": source} for name, source in references.items()),
        ]


@pytest.mark.parametrize(
    ("variable", "is_told"),
    [("HF_TOKEN=hunter2", True), ("X=ghp_0123456789abcdefghijABCDEFGHIJ012345", True), ("X=1", 0)],
)
def test_a_secret_that_is_typed_openly_is_told_in_one_line(variable: str, is_told: bool) -> None:
    name, _, value = variable.partition("=")
    error = made("--env", variable, "train.py")[1]
    lines = [line for line in error.splitlines() if line.startswith(f"warning: --env {name}=… ")]
    assert len(lines) == is_told
    assert value not in error or value == "1"


def test_without_a_script_the_likely_one_is_proposed(folder: Path) -> None:
    assert container(made()[0])["command"][-1] == "train.py"
    (folder / "train.py").unlink()
    assert "there are several scripts here: name one of " in refused()
    for path in folder.glob("*.py"):
        path.unlink()
    assert "there is no Python script here" in refused()


def test_nothing_said_is_nothing() -> None:
    assert not ScriptShape()
    assert ScriptShape(restarts=1)


def test_a_link_to_a_script_is_followed_as_python_follows_it(folder: Path) -> None:
    """To its own modules, which lie where the script is."""
    (folder / "bin").mkdir()
    (folder / "bin" / "linked.py").symlink_to("../uses.py")
    job, said = made("--replicas", "2", "bin/linked.py")
    assert job["kind"] == "PyTorchTrainingJob"
    assert "launcher torchrun, because it imports torch" in said
    assert "imports own from its folder" in refused(
        "--for-cluster", "--image", "i", "bin/linked.py"
    )


def test_a_program_may_be_run_plainly_and_not_by_launchers_of_python() -> None:
    job, _ = made("--launcher", "plain", "--replicas", "2", "run.sh")
    assert job["kind"] == "PyTorchTrainingJob"
    (replica,) = job["spec"]["replicaSpecs"]
    assert replica["template"]["spec"]["containers"][0]["command"] == ["sh", "run.sh"]
    assert "or plain if it wants ranks" in refused("--launcher", "torchrun", "run.sh")
