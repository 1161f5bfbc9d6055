"""By which PYTHONPATH the observer comes, and that no program loses its own (decision 223)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kinds.pods.jobs import container, env, job, pod, replicas, workload
from tests.unit.kinds.pods.ssh_jobs import deepspeed

from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.workload import ReplicaKey
from trainyard.kube import embedded_contract
from trainyard.kube.resources import SECRETS
from trainyard.payloads import shipping
from trainyard.payloads.launch import sshd_setup
from trainyard.payloads.torchrun import torchrun_program

CLUSTER = Settings(channel_address="reports.test:7443")
EMBEDDED = Settings(channel_address="10.0.0.1:7443", brings_observer=True)
FROM_ELSEWHERE = {"configMapKeyRef": {"name": "paths", "key": "python"}}


def built(
    path: dict[str, Any] | None = None, settings: Settings = CLUSTER, **spec: Any
) -> tuple[dict[str, Any], bool]:
    """A pod whose container has a PYTHONPATH, and whether the programs come to it."""
    variables = [{"name": "BEFORE", "value": "b"}]
    variables += [] if path is None else [{"name": "PYTHONPATH", **path}]
    main = {"name": "pytorch", "image": "i", "command": ["python", "train.py"], "env": variables}
    described = workload(
        job("PyTorchTrainingJob", replicaSpecs=[replicas(containers=[main])], **spec), settings
    )
    [secret] = [each for each in described.dependents if each.resource == SECRETS]
    made = secret.manifest(secret.name)
    found = pod(described)
    mounts = {each["mountPath"] for each in container(found)["volumeMounts"]}
    observed = embedded_contract.OBSERVE in env(found)
    carried = described.hang is not None and not settings.brings_observer
    assert (shipping.HOOK in made["stringData"]) == carried
    assert (shipping.OBSERVER_ARCHIVE in made["data"]) == carried
    assert (embedded_contract.OBSERVER_PATH in mounts) == (
        observed and not settings.brings_observer
    )
    return env(found), observed


def test_on_a_cluster_a_job_that_asks_for_nothing_keeps_the_path_of_its_image() -> None:
    variables, observed = built()
    assert not observed
    assert "PYTHONPATH" not in variables


@pytest.mark.parametrize("policy", [{"observe": True}, {"hang": {"action": "Restart"}}])
def test_on_a_cluster_a_job_that_asks_for_it_is_observed(policy: dict[str, Any]) -> None:
    variables, observed = built(runPolicy=policy)
    assert observed
    assert variables["PYTHONPATH"] == embedded_contract.OBSERVER_PATH


def test_a_path_of_the_manifest_stays_behind_ours_and_what_it_refers_to_before_it() -> None:
    variables, observed = built({"value": "$(BEFORE)/lib:"})
    assert observed
    assert variables["PYTHONPATH"] == f"{embedded_contract.OBSERVER_PATH}:$(BEFORE)/lib:"
    assert list(variables).index("BEFORE") < list(variables).index("PYTHONPATH")
    assert built({"value": ""})[0]["PYTHONPATH"] == embedded_contract.OBSERVER_PATH


def test_a_path_from_elsewhere_is_left_alone() -> None:
    assert built({"valueFrom": FROM_ELSEWHERE}, runPolicy={"observe": True})[1] is False


def test_whoever_does_not_want_to_be_observed_is_not() -> None:
    off = {"observe": False, "hang": {"action": "Fail"}}
    assert built({"value": "/lib"}, runPolicy=off) == built({"value": "/lib"}, runPolicy=off)
    for settings in (CLUSTER, EMBEDDED):
        variables, observed = built({"value": "/lib"}, settings, runPolicy=off)
        assert not observed
        assert variables["PYTHONPATH"] == "/lib"


@pytest.mark.parametrize("path", [None, {"value": "/lib"}, {"valueFrom": FROM_ELSEWHERE}])
def test_on_one_machine_the_node_agent_has_the_path(path: dict[str, Any] | None) -> None:
    variables, observed = built(path, EMBEDDED)
    assert observed
    assert variables.get("PYTHONPATH") == (None if path is None else path.get("value", ""))


@pytest.mark.parametrize("settings", [CLUSTER, EMBEDDED])
def test_who_has_something_else_where_the_programs_would_be_is_not_observed(
    settings: Settings,
) -> None:
    main = {"name": "pytorch", "image": "i", "command": ["python", "train.py"]}
    main["volumeMounts"] = [{"name": "own", "mountPath": f"{embedded_contract.OBSERVER_PATH}/"}]
    made = job("PyTorchTrainingJob", replicaSpecs=[replicas(containers=[main])])
    made["spec"]["runPolicy"] = {"observe": True}
    found = pod(workload(made, settings))
    assert embedded_contract.OBSERVE not in env(found)
    assert "trainyard-observer" not in {each["name"] for each in found["spec"]["volumes"]}


def test_before_puts_ours_first_once_and_keeps_the_rest() -> None:
    assert embedded_contract.prepend_observer("") == embedded_contract.OBSERVER_PATH
    assert (
        embedded_contract.prepend_observer("/a::/b") == f"{embedded_contract.OBSERVER_PATH}:/a::/b"
    )
    assert (
        embedded_contract.prepend_observer(f"/a:{embedded_contract.OBSERVER_PATH}")
        == f"/a:{embedded_contract.OBSERVER_PATH}"
    )


@pytest.mark.parametrize(
    "path", ["", "/image/lib", f"{embedded_contract.OBSERVER_PATH}:/image/lib"]
)
@pytest.mark.parametrize("observed", [True, False])
def test_ranks_of_torchrun_find_ours_before_the_path_of_the_image(
    path: str, observed: bool, tmp_path: Path
) -> None:
    """The program in torchrun's place, up to where it would load torch."""
    code = shipping.torchrun_program(elastic=False).removesuffix("main(*RANK_PATCHES)\n")
    source = "let_ranks_be_observed()\nprint(os.environ.get('PYTHONPATH'))"
    variables = {"PATH": os.environ["PATH"], **({"PYTHONPATH": path} if path else {})}
    variables |= {embedded_contract.OBSERVE: "attempt=1"} if observed else {}
    done = subprocess.run(
        [sys.executable, "-c", code + source],
        env=variables,
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.strip() == (
        embedded_contract.prepend_observer(path) if observed else path or "None"
    )


@pytest.mark.parametrize("disabled", [False, True])
def test_ranks_over_ssh_find_ours_before_the_path_of_the_image(disabled: bool) -> None:
    described = deepspeed(settings=CLUSTER, disableCustomEnv=disabled)
    made = described.build_pod(ReplicaKey("worker", 1), 1, pod_group="", resumed=False)
    assert embedded_contract.OBSERVE in env(made)
    assert "PYTHONPATH" not in env(made)
    spec = json.loads(made["metadata"]["annotations"]["trainyard.dev/launch"])
    pairs = [f"{name}={value}".encode() for name, value in env(made).items()]
    pairs.append(b"PYTHONPATH=/image/lib")
    sessions = sshd_setup.session_environment(pairs, spec["customEnv"], disabled)
    found = dict(
        e.split(b"=", 1) for e in sshd_setup.training_environment(sessions, Path("/run"), 5)
    )
    assert found[b"PYTHONPATH"] == embedded_contract.prepend_observer("/image/lib").encode()
    assert sshd_setup.OBSERVED.decode() == torchrun_program.OBSERVE == embedded_contract.OBSERVE
    assert sshd_setup.OBSERVER.decode() == torchrun_program.OBSERVER_PATH
    assert embedded_contract.OBSERVER_PATH == torchrun_program.OBSERVER_PATH
    without = [pair for pair in pairs if not pair.startswith(sshd_setup.OBSERVED)]
    found = dict(
        e.split(b"=", 1) for e in sshd_setup.training_environment(without, Path("/run"), 5)
    )
    assert found[b"PYTHONPATH"] == b"/image/lib"
