"""A kind that a package of its own brings: nothing of trainyard knows its name."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from tests.embedded.command_line import CommandLine, Object, shell, until
from tests.tools import kubectl_path, oldest_and_newest_kubectl

ROOT = Path(__file__).parents[2]
PACKAGE = {
    "sweeps/__init__.py": """
        from trainyard.kinds.kind import Kind

        KIND = Kind(
            "SweepJob",
            "sweepjobs",
            ("swj",),
            __name__,
            group="example.org",
            training_containers=("trial",),
            budget="backoffCount",
        )
        """,
    "sweeps/spec.py": """
        from pydantic import Field

        from trainyard.kinds.extension import (
            RUN_MODE,
            RUN_POLICY,
            SCHEDULER,
            Count,
            Job,
            Model,
            RunMode,
            RunPolicy,
            SchedulePolicy,
            Template,
        )


        class SweepJobSpec(Model):
            trials: Count = Field(default=1, description="Number of trials. Defaults to 1.")
            template: Template = Field(description="The pod of a trial.")
            run_mode: RunMode = RUN_MODE
            run_policy: RunPolicy = RUN_POLICY
            scheduler: SchedulePolicy | None = SCHEDULER


        class SweepJob(Job):
            \"\"\"Trials of a program, each with its number.\"\"\"

            spec: SweepJobSpec = Field(description="What to run.")
        """,
    "sweeps/rules.py": """
        from trainyard.kinds.extension import job_rules, pod_template_rules


        def check(job):
            trials = [("trial", job.spec.trials)]
            return [
                *job_rules.check_name(job.metadata, trials),
                *pod_template_rules.check_template(job.spec.template, ("spec", "template")),
            ]
        """,
    "sweeps/workload.py": """
        from trainyard.kinds.extension import (
            ReplicaType,
            RestartPolicy,
            WorkloadFactory,
            pod_assembly,
        )


        class Sweep(WorkloadFactory):
            @property
            def types(self):
                policy, limit = RestartPolicy.ON_FAILURE, self.spec.run_policy.backoff_limit
                main = self.container("trial")
                return (ReplicaType("trial", self.spec.trials, policy, limit, main),)

            def template(self, replica_type):
                return self.spec.template

            def launch(self, pod, key, start):
                super().launch(pod, key, start)
                pod_assembly.put_env_first(pod, {"TRIAL": str(key.ordinal)})


        def describe(job, settings):
            return Sweep(job, settings).workload()
        """,
    "sweeps-1.dist-info/METADATA": """
        Metadata-Version: 2.1
        Name: sweeps
        Version: 1
        """,
    "sweeps-1.dist-info/entry_points.txt": """
        [trainyard.kinds]
        SweepJob = sweeps:KIND
        """,
}


def sweep(name: str, script: str, trials: int = 2) -> Object:
    """A job whose training container is not the first."""
    sidecar = {"name": "sidecar", "image": "busybox", "command": shell("echo beside; sleep 600")}
    trial = {"name": "trial", "image": "busybox", "command": shell(script)}
    pod = {"containers": [sidecar, trial], "terminationGracePeriodSeconds": 1}
    return {
        "apiVersion": "example.org/v1beta1",
        "kind": "SweepJob",
        "metadata": {"name": name},
        "spec": {"trials": trials, "template": {"spec": pod}},
    }


@pytest.fixture(scope="module")
def trainyard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """Beside the package, with its generated files; a cluster runs in the background."""
    line = CommandLine(tmp_path_factory.mktemp("outside"))
    site = line.folder / "site"
    for name, text in PACKAGE.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).lstrip())
    paths = [str(site), os.environ.get("PYTHONPATH", "")]
    line.environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    for tool in ("tools.crds", "tools.reference"):
        command = [sys.executable, "-m", tool, "--kind", "sweeps"]
        subprocess.run(command, cwd=ROOT, env=line.environment, check=True, timeout=120)
    line.run("up")
    yield line
    line.run("down", code=None)
    line.kill_everything()


def test_its_files_are_generated(trainyard: CommandLine) -> None:
    page = (trainyard.folder / "site/sweeps/sweepjob.md").read_text()
    assert "Trials of a program, each with its number." in page
    assert "| `trials` | int32 | `1` | Number of trials. Defaults to 1. |" in page
    assert "name: sweepjobs.example.org" in trainyard.run("crds", "--kind", "SweepJob")


def test_a_cluster_gives_the_operator_its_rights(trainyard: CommandLine) -> None:
    """It is of a group of its own, in which ours has none."""
    objects = list(yaml.safe_load_all(trainyard.run("manifests", "--image", "i")))
    (role,) = (
        each
        for each in objects
        if each["metadata"]["name"] == "trainyard-operator" and each["kind"] == "ClusterRole"
    )
    given = {
        (name, verb)
        for rule in role["rules"]
        if "example.org" in rule["apiGroups"]
        for name in rule["resources"]
        for verb in rule["verbs"]
    }
    assert {("sweepjobs", "watch"), ("sweepjobs/status", "update")} <= given
    assert ("sweepjobs/finalizers", "update") in given
    assert "sweepjobs.example.org" in {each["metadata"]["name"] for each in objects}


def test_it_is_validated_and_rendered(trainyard: CommandLine) -> None:
    good = trainyard.manifest("good.yaml", sweep("good", "true"))
    trainyard.run("validate", "-f", good)
    rendered = trainyard.run("render", "-f", good)
    assert "tensorstack.dev/component: sweepjob" in rendered
    assert rendered.count("name: TRIAL") == 4
    bad = sweep("bad", "true")
    bad["spec"]["trails"] = bad["spec"].pop("trials")
    bad["spec"]["template"]["spec"]["containers"][1]["commands"] = ["x"]
    output = trainyard.run("validate", "-f", trainyard.manifest("bad.yaml", bad), code=None)
    assert "did you mean 'trials'" in output
    assert "did you mean 'command'" in output


def test_it_runs_restarts_and_tells_of_itself(trainyard: CommandLine) -> None:
    """The first attempt fails; the second waits to be looked at, and ends when told."""
    marker, end = trainyard.folder / "tried", trainyard.folder / "end"
    script = (
        f"echo trial $TRIAL; test $TRIAL = 0 || sleep 600; test -e {marker} || "
        f"{{ touch {marker}; exit 3; }}; until test -e {end}; do sleep 0.1; done"
    )
    path = trainyard.manifest("sweep.yaml", sweep("sweep", script))
    trainyard.run("submit", "-f", path)
    until(lambda: marker.exists(), "the first attempt")
    trainyard.run("wait", "sweep", "--for", "phase=Running", "--timeout", "120")
    until(lambda: "sweep" in trainyard.run("list"), "it is listed")
    ended = "attempt 1 was ended by trial-0"
    until(lambda: ended in trainyard.run("explain", "swj/sweep"), "its restart is told")
    end.touch()
    trainyard.run("wait", "sweep", "--for", "phase=Succeeded", "--timeout", "120")
    log = trainyard.run("logs", "sweep")
    assert "trial 0" in log
    assert "beside" not in log
    row = next(line for line in trainyard.run("list").splitlines() if "sweep" in line)
    assert row.split()[:5] == ["sweep", "SweepJob", "Succeeded", "1/2", "1"]


@pytest.mark.parametrize("version", oldest_and_newest_kubectl())
def test_kubectl_has_its_columns(trainyard: CommandLine, version: str) -> None:
    name = f"seen-{version.replace('.', '-')}"
    trainyard.run("submit", "-f", trainyard.manifest("seen.yaml", sweep(name, "exit 0", 1)))
    trainyard.run("wait", name, "--for", "phase=Succeeded", "--timeout", "120")
    environment = {**trainyard.environment, "KUBECONFIG": str(trainyard.state / "kubeconfig")}
    command = [kubectl_path(version), "get", "swj", name]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    header, row = done.stdout.splitlines()
    assert header.split() == ["NAME", "PHASE", "RUNNING", "RESTARTS", "AGE"]
    assert row.split()[:2] == [name, "Succeeded"]


def test_run_follows_it_to_its_end(trainyard: CommandLine) -> None:
    path = trainyard.manifest("run.yaml", sweep("alone", "echo trial $TRIAL of alone", 1))
    output = trainyard.run("run", "-f", path)
    assert "trial 0 of alone" in output
    assert "Succeeded" in output
