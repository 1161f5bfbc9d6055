"""Every command that a text advises works as it is printed."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.advised_commands import advised
from tests.embedded.command_line import CommandLine, Object, generic
from tests.embedded.launching import require_programs

RUNS, FAILED, AGAIN, PAUSED, ENDS = "runs", "failed", "again", "paused", "ends"
JOBS = {
    **dict.fromkeys(("explain", "events"), FAILED),
    **dict.fromkeys(("stacks", "exec"), RUNS),
    "resume": PAUSED,
    "delete": ENDS,
}
"""Of which job a command is about; of the others it is one that has failed."""
VALUES = {
    "replica": "worker-0",
    "death.logs": " --replica worker-0",
    "options": " --replica worker-0",
    "found[1]": "small",
    "name": "main",
    "(others or [replica])[0]": "worker-0",
}
"""What stands in the place of expressions."""
ELSEWHERE = re.compile(r"kubectl |trainyard (?:crds|manifests)|trainyard up(?: |;|$)|.*[…|]")
"""What asks for a program, a cluster or rights that this machine need not have."""
NAMES: set[str] = {
    *("trainyard channel", "trainyard channel authority", "trainyard channel {uid}"),
    *("trainyard local authority", "trainyard {found.version}", "trainyard operator"),
    "trainyard {self.hello.build or 'of another version'}",
    "trainyard scale changes it while the job runs",
    "trainyard stacks ",
}
"""Of certificates, versions and programs, in the form of a command."""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """A cluster with a job of each sort."""
    line = CommandLine(tmp_path_factory.mktemp("advised"))
    line.run("up")
    once = f"[ -e {line.folder}/once ] || {{ touch {line.folder}/once; echo first; exit 1; }}; "
    sorts = {
        RUNS: (generic(RUNS, "exec python3 -c 'import time; time.sleep(3600)'"), "Running"),
        FAILED: (generic(FAILED, "echo no; exit 3"), "Failed"),
        AGAIN: (generic(AGAIN, once + "sleep 3600", limit=1), "Running"),
        PAUSED: (generic(PAUSED, "sleep 3600"), "Running"),
        ENDS: (generic(ENDS, "true"), "Succeeded"),
    }
    line.run("queue", "create", "small")
    for name, (manifest, phase) in sorts.items():
        line.run("submit", "-f", line.manifest(f"{name}.yaml", manifest))
        line.run("wait", name, "--for", f"phase={phase}", "--timeout", "120")
    line.run("pause", PAUSED)
    yield line
    line.run("down", code=None)
    line.kill_everything()


def filled(template: str) -> str:
    """The command as it would be printed for these jobs."""
    verb = template.split()[1]
    about = AGAIN if "--previous" in template else JOBS.get(verb, FAILED)

    def value(found: re.Match[str]) -> str:
        if found[1].endswith("job.name") or found[1] == "about":
            return about
        return "large" if "queue create" in template else VALUES[found[1]]

    return re.sub(r"\{(.+?)\}", value, template)


def whole(template: str) -> bool:
    """Whether it is a command for this cluster, and not the name of one that needs more words."""
    return template not in NAMES and not ELSEWHERE.match(template)


TEMPLATES = [each.template for each in advised() if whole(each.template)]
MENTIONED: set[str] = {
    *("trainyard explain", "trainyard events", "trainyard logs", "trainyard rerun"),
    *("trainyard convert", "trainyard scale", "trainyard debug", "trainyard run"),
    *("trainyard doctor --restore", "trainyard run {name}", "trainyard chaos -o json"),
    "trainyard {verb} {job.name} {self.options}",
}
"""Commands that are named beside a text, where their words follow from it."""


def test_what_is_mentioned_is_there_and_named_no_more_than_that() -> None:
    assert {*TEMPLATES} >= MENTIONED
    assert {each.template for each in advised()} >= NAMES


@pytest.mark.parametrize(
    "command",
    sorted(
        {filled(template) for template in {*TEMPLATES} - MENTIONED},
        key=lambda each: (" down" in each, " restart" in each, each),
    ),
)
def test_a_command_that_a_text_advises_works(command: str, yard: CommandLine) -> None:
    words = shlex.split(command)[1:]
    if "FILE" in words:
        words[words.index("FILE")] = str(yard.folder / f"{ENDS}.yaml")
        if words[0] == "run":
            words.append("--replace")
    yard.run(*words)


def test_commands_about_a_job_of_another_namespace_reach_it(yard: CommandLine) -> None:
    """As they are printed, in the card and in advice."""
    manifest = yard.manifest("elsewhere.yaml", generic("elsewhere", "echo no; exit 3"))
    printed = yard.run("run", "--keep", "-n", "team", "-f", manifest, code=1)
    printed += yard.run("wait", "elsewhere", "-n", "team", code=1)
    printed += yard.run("explain", "elsewhere", "-n", "team")
    commands = re.findall(r"^  \$ (trainyard .+)$|`(trainyard [^`]+)`", printed, re.MULTILINE)
    found = {first or second for first, second in commands}
    assert found, printed
    for command in found:
        assert "no" in yard.run(*shlex.split(command)[1:])


HANG = """\
import torch.distributed as dist, torch, time
dist.init_process_group("gloo")
one = torch.ones(4)
dist.all_reduce(one)
dist.all_reduce(one) if dist.get_rank() == 0 else dist.barrier()
time.sleep(3600)
"""
CAUSES: dict[str, tuple[str, Object]] = {
    "hang": (HANG, {"hang": {"afterSeconds": 10, "action": "Fail"}}),
    "deadline": ("import time\ntime.sleep(3600)\n", {"activeDeadlineSeconds": 2}),
    "exit": ("raise SystemExit('no data')\n", {}),
    "silent": ("raise SystemExit(3)\n", {}),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_the_command_of_a_card_works_after_a_run_of_its_own(cause: str, tmp_path: Path) -> None:
    """When nobody is left who could be asked."""
    if cause == "hang":
        require_programs("torchrun")
    program, policy = CAUSES[cause]
    yard = CommandLine(tmp_path)
    (tmp_path / "train.py").write_text(program)
    main = {"name": "pytorch", "image": "python:3.11", "command": ["python", "train.py"]}
    worker = {"type": "worker", "replicas": 2, "template": {"spec": {"containers": [main]}}}
    body = {
        "apiVersion": "batch.tensorstack.dev/v1beta1",
        "kind": "PyTorchTrainingJob",
        "metadata": {"name": cause},
        "spec": {"runPolicy": policy, "replicaSpecs": [worker]},
    }
    printed = yard.run("run", "-f", yard.manifest("job.yaml", body), code=1)
    command = printed.rstrip().splitlines()[-1]
    assert command.startswith("  $ less "), printed
    shown = subprocess.run(
        ["sh", "-c", command.removeprefix("  $ ").replace("less ", "cat ", 1)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ("when it hung" if cause == "hang" else "") in shown.stdout
