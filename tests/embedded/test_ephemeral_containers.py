"""`kubectl debug` of pods that run, as a user has it, on clusters of `trainyard up`."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.embedded import as_user
from tests.embedded.command_line import CommandLine, job, until
from tests.embedded.kubectl import JOBS
from tests.embedded.users_kubectl import UsersKubectl
from tests.tools import kubectl_path, missing, oldest_and_newest_kubectl

Object = dict[str, Any]
ROOT = Path(__file__).parents[2]
_WAYS = {"root": (), "unprivileged": (sys.executable, "-m", "tests.embedded.as_user")}
DEBUG = ("--profile=baseline", "--image=busybox", "--quiet")
LONG = "sleep 31415"
SHARED = {
    "volumes": [{"name": "data", "emptyDir": {}}],
    "terminationGracePeriodSeconds": 1,
}
MOUNTED = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
UNTIL_TOLD = ["sh", "-c", f"until [ -e /data/end ]; do sleep 0.05; done; : {LONG}"]


@pytest.fixture(scope="module", params=_WAYS.values(), ids=_WAYS)
def trainyard(request: pytest.FixtureRequest) -> Iterator[CommandLine]:
    if request.param and os.geteuid():
        missing("becoming another user needs root")
    # Not pytest's folder, which only its owner may enter.
    with tempfile.TemporaryDirectory(prefix="trainyard-debug-") as name:
        os.chown(name, as_user.USER if request.param else os.geteuid(), -1)
        line = CommandLine(Path(name), wrapper=request.param, start_in=ROOT)
        try:
            line.run("up")
            yield line
            line.run("down")
        finally:
            line.kill_everything()


class Kubectl(UsersKubectl):
    """With what is asked of pods here."""

    def pod(self, name: str) -> Object:
        found: Object = json.loads(self("get", "pod", name, "-o", "json"))
        return found

    def end(self, pod: str) -> None:
        """Let its program end, and with it, perhaps, the command that tells it so."""
        self("exec", pod, "--", "touch", "/data/end", codes=(0, 137))

    def end_of(self, pod: str, container: str) -> Object:
        """How an ephemeral container has ended, once it has."""
        found: Object = {}

        def has_ended() -> bool:
            told = self.pod(pod)["status"].get("ephemeralContainerStatuses", ())
            for each in told:
                if each["name"] == container and "terminated" in each["state"]:
                    found.update(each["state"]["terminated"])
            return bool(found)

        until(has_ended, f"{container} ends")
        return found


@pytest.fixture(params=oldest_and_newest_kubectl())
def kubectl(request: pytest.FixtureRequest, trainyard: CommandLine) -> Iterator[Kubectl]:
    """With a pod `p` that runs until it is told to end."""
    made = Kubectl(trainyard, kubectl_path(request.param))
    container = {"name": "main", "image": "i", "command": UNTIL_TOLD, **MOUNTED}
    spec = {**SHARED, "restartPolicy": "Never", "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    made("create", "-f", "-", stdin=json.dumps(pod))
    made("wait", "pod/p", "--for=condition=Ready", "--timeout=5m")
    yield made
    made("delete", "pod", "p", "--ignore-not-found", "--grace-period=1")


def test_a_shell_among_the_processes_of_a_container(kubectl: Kubectl) -> None:
    shell = ("-it", "--target=main", "-c", "d", "--", "sh", "-i")
    with kubectl.on_terminal("debug", "p", *DEBUG, *shell) as terminal:
        # The shell alone says what is reckoned: the terminal may echo what is typed.
        terminal.type("\necho $((40 + 2)) of `hostname`\n")
        terminal.until("42 of p")
        # Its own words must not match, and processes that end meanwhile are none of its business.
        terminal.type("grep -qs '[3]1415' /proc/[0-9]*/cmdline && echo $((6 * 7))s\n")
        terminal.until("42s")
        terminal.type("setsid sleep 27182 &\n")
        until(lambda: kubectl.trainyard.processes("sleep 27182"), "it is left behind")
        assert "42 of p" in kubectl("logs", "p", "-c", "d")
        assert kubectl("exec", "p", "-c", "d", "--", "hostname") == "p\n"
        terminal.type("exit 5\n")
        terminal.end()
    assert kubectl.end_of("p", "d")["exitCode"] == 5
    until(lambda: not kubectl.trainyard.processes("sleep 27182"), "what it left behind is ended")
    pod = kubectl.pod("p")
    assert pod["status"]["phase"] == "Running"
    (main,) = pod["status"]["containerStatuses"]
    assert (main["ready"], main["restartCount"]) == (True, 0)


def test_a_shell_of_its_own_without_a_command(kubectl: Kubectl) -> None:
    """It is in the pod's network, and sees its own processes."""
    typed = "hostname; grep -ls '[3]1415' /proc/[0-9]*/cmdline; exit 3\n"
    kubectl("debug", "p", *DEBUG, "-i", "-c", "d", stdin=typed)
    assert kubectl.end_of("p", "d")["exitCode"] == 3
    assert kubectl("logs", "p", "-c", "d") == "p\n"
    kubectl.end("p")
    kubectl("wait", "pod/p", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=5m")


def test_it_ends_with_the_container_whose_processes_it_shares(kubectl: Kubectl) -> None:
    kubectl("debug", "p", *DEBUG, "--target=main", "-c", "d", "--", "sleep", "16180")
    until(lambda: kubectl.trainyard.processes("sleep 16180"), "it runs")
    kubectl.end("p")
    assert kubectl.end_of("p", "d")["exitCode"] == 137
    kubectl("wait", "pod/p", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=5m")
    assert not kubectl.trainyard.processes("sleep 16180")


def test_what_cannot_start_is_told_and_the_pod_goes_on(kubectl: Kubectl) -> None:
    kubectl("debug", "p", *DEBUG, "-c", "d", "--", "no-such-program")
    end = kubectl.end_of("p", "d")
    assert (end["exitCode"], end["message"].startswith("command not found")) == (127, True)
    assert kubectl.pod("p")["status"]["phase"] == "Running"


def test_a_copy_whose_program_is_a_shell(kubectl: Kubectl) -> None:
    copied = ("--copy-to=copy", "--container=main", "--", "sh", "-c", "echo copied; sleep 14142")
    try:
        kubectl("debug", "p", "--profile=baseline", *copied)
        kubectl("wait", "pod/copy", "--for=condition=Ready", "--timeout=5m")
        until(lambda: kubectl("logs", "copy") == "copied\n", "the copy writes")
        assert kubectl.pod("p")["status"]["phase"] == "Running"
    finally:
        kubectl("delete", "pod", "copy", "--ignore-not-found", "--grace-period=0", "--force")


def test_a_job_is_judged_by_its_own_containers(trainyard: CommandLine) -> None:
    kubectl = Kubectl(trainyard, kubectl_path(oldest_and_newest_kubectl()[-1]))
    made = job("job", UNTIL_TOLD, container=MOUNTED, pod=SHARED, policy="ExitCode")
    kubectl("create", "-f", "-", stdin=json.dumps(made))
    until(lambda: "pod/job-" in kubectl("get", "pods", "-o", "name"), "it has a pod")
    listed = kubectl("get", "pods", "-o", "name").split()
    (pod,) = (each.removeprefix("pod/") for each in listed if each.startswith("pod/job-"))
    kubectl("wait", f"pod/{pod}", "--for=condition=Ready", "--timeout=5m")
    kubectl("debug", pod, *DEBUG, "-c", "d", "--", "sh", "-c", "exit 3")
    assert kubectl.end_of(pod, "d")["exitCode"] == 3
    kubectl("debug", pod, *DEBUG, "-c", "stays", "--target=main", "--", "sleep", "1000")
    kubectl.end(pod)
    assert "Succeeded" in trainyard.run("wait", "job")
    status = json.loads(kubectl("get", JOBS, "job", "-o", "json"))["status"]
    assert not status.get("failureCount"), status
    assert kubectl.pod(pod)["metadata"]["uid"] == status["tasks"][0]["replicas"][0]["uid"]
