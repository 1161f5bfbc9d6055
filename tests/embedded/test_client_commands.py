"""The commands that talk to a cluster, on an embedded one that runs in the background."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.embedded.command_line import CommandLine, Object, generic, job, until

_FOREVER = ["sleep", "3600"]


@pytest.fixture(scope="module")
def trainyard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """A cluster for all tests of this module: each has jobs of its own."""
    line = CommandLine(tmp_path_factory.mktemp("commands"))
    line.run("up")
    yield line
    line.run("down", code=None)
    line.kill_everything()


def submit(trainyard: CommandLine, obj: Object, *, until_phase: str = "") -> str:
    """Submit a job and, if asked to, wait for a phase; its name."""
    name = str(obj["metadata"]["name"])
    trainyard.run("submit", "-f", trainyard.manifest(f"{name}.yaml", obj))
    if until_phase:
        trainyard.run("wait", name, "--for", f"phase={until_phase}", "--timeout", "120")
    return name


def stored(trainyard: CommandLine, name: str) -> Object:
    """The job as the server has it."""
    obj: Object = json.loads(trainyard.run("show", name, "-o", "json"))
    return obj


def fed(trainyard: CommandLine, text: str, *arguments: str) -> tuple[int, str]:
    """Run a command with `text` on its standard input; exit code and output."""
    done = subprocess.run(
        [sys.executable, "-m", "trainyard.cli.main", *arguments],
        input=text,
        cwd=trainyard.folder,
        env=trainyard.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_job_from_its_submission_to_its_deletion(trainyard: CommandLine) -> None:
    file = trainyard.manifest("whole.yaml", generic("whole", "echo done", replicas=2))
    assert "GenericJob default/whole created" in trainyard.run("submit", "-f", file)
    assert "already exists" in trainyard.run("submit", "-f", file, code=1)
    assert "Succeeded" in trainyard.run("wait", "whole", "--timeout", "120")
    (line,) = [x for x in trainyard.run("list", "gj").splitlines() if x.startswith("whole ")]
    assert line.split()[1:5] == ["GenericJob", "Succeeded", "0/2", "0"]
    page = trainyard.run("show", "whole")
    assert "worker-1" in page
    assert str(trainyard.state) in page
    assert "done its work" in trainyard.run("explain", "whole")
    assert "Succeeded" in trainyard.run("events", "whole")
    assert trainyard.run("logs", "whole").splitlines() == ["[worker-0] done", "[worker-1] done"]
    assert trainyard.run("logs", "whole", "--replica", "worker-1") == "done\n"
    trainyard.run("delete", "whole", "--wait")
    assert "no job whole" in trainyard.run("show", "whole", code=1)


def test_a_manifest_from_standard_input_is_submitted(trainyard: CommandLine) -> None:
    code, output = fed(trainyard, yaml.safe_dump(generic("piped", "true")), "submit", "-f", "-")
    assert (code, output) == (0, "GenericJob default/piped created\n")
    trainyard.run("delete", "piped")


@pytest.mark.parametrize("command", [("submit",), ("run", "-d")], ids=["submit", "run"])
def test_a_claim_without_a_folder_is_told_where_nobody_follows(
    trainyard: CommandLine, command: tuple[str, ...]
) -> None:
    name = f"claims-{command[0]}"
    volumes = [
        {"name": claim, "persistentVolumeClaim": {"claimName": f"{name}-{claim}"}}
        for claim in ("kept", "named", "empty")
    ]
    mounts = [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in volumes]
    obj = job(name, _FOREVER, container={"volumeMounts": mounts}, pod={"volumes": volumes})
    other = generic(f"{name}-first", "true")
    file = trainyard.manifest(f"{name}.yaml", obj)
    kept = trainyard.state / "volumes" / "default" / f"{name}-kept"
    kept.mkdir(parents=True)
    (kept / "set.csv").touch()
    folder = f"{name}-named={trainyard.folder}"
    trainyard.run(
        "submit", "-f", trainyard.manifest("first.yaml", other), "--volume", folder
    )  # the claim keeps its folder
    output = trainyard.run(*command, "-f", file)
    (warning,) = [line for line in output.splitlines() if "is not mapped to a folder" in line]
    assert warning.startswith(f"warning: claim '{name}-empty' is")
    assert warning.endswith(f"--volume {name}-empty=DIR")
    trainyard.run("delete", name, f"{name}-first")


def test_nothing_is_created_when_one_of_the_files_is_wrong(trainyard: CommandLine) -> None:
    good = trainyard.manifest("good.yaml", generic("good", "true"))
    bad = trainyard.manifest("bad.yaml", {**generic("bad", "true"), "kind": "GenericJobb"})
    output = trainyard.run("submit", "-f", good, "-f", bad, code=1)
    assert "did you mean 'GenericJob'" in output
    assert "no job good" in trainyard.run("show", "good", code=1)


def test_the_jobs_of_a_manifest_are_deleted_by_it(trainyard: CommandLine) -> None:
    file = trainyard.manifest("both.yaml", generic("one-of-two", "true"), job("two", ["/bin/true"]))
    trainyard.run("submit", "-f", file)
    deleted = trainyard.run("delete", "-f", file, "--wait")
    assert sorted(deleted.splitlines()) == [
        "GenericJob default/one-of-two deleted",
        "PyTorchTrainingJob default/two deleted",
    ]
    assert "which jobs?" in trainyard.run("delete", code=1)


def test_a_manifest_for_another_namespace_than_asked_for_is_refused(
    trainyard: CommandLine,
) -> None:
    there = generic("there", "true")
    there["metadata"]["namespace"] = "red"
    file = trainyard.manifest("there.yaml", there)
    refusal = trainyard.run("submit", "-f", file, "-n", "blue", code=1)
    assert "meant for namespace red, not blue" in refusal


def test_a_name_of_two_kinds_must_be_told_apart(trainyard: CommandLine) -> None:
    submit(trainyard, generic("twin", "true"))
    submit(trainyard, job("twin", ["/bin/true"]))
    refusal = trainyard.run("show", "twin", code=1)
    assert "pj/twin" in refusal
    assert "gj/twin" in refusal
    assert "say which" in trainyard.run("delete", "twin", "--ignore-not-found", code=1)
    assert "PyTorchTrainingJob" in trainyard.run("show", "pj/twin")
    names = trainyard.run("list", "-o", "name").split()
    assert "genericjob.batch.tensorstack.dev/twin" in names
    trainyard.run("delete", *(name for name in names if name.endswith("/twin")))


def test_a_misspelt_name_is_answered_with_the_right_one(trainyard: CommandLine) -> None:
    submit(trainyard, generic("spelling", "true"))
    assert "did you mean spelling?" in trainyard.run("show", "speling", code=1)
    trainyard.run("delete", "spelling")
    trainyard.run("delete", "spelling", "--ignore-not-found")
    assert "no job kind 'zz'" in trainyard.run("show", "zz/spelling", code=1)


def test_wait_ends_with_0_1_or_3(trainyard: CommandLine) -> None:
    name = submit(trainyard, generic("waits", "sleep 3600"), until_phase="Running")
    trainyard.run("wait", name, "--for", "condition=Running", "--timeout", "120")
    assert "gave up" in trainyard.run("wait", name, "--timeout", "0.2", code=3)
    trainyard.run("wait", name, "--timeout", "0", code=3)
    trainyard.run("wait", name, "--for", "phase=Running", "--timeout", "0")
    with trainyard.running("wait", name, "--for", "delete") as waiting:
        until(lambda: _has_connected(waiting.pid), "the command waits")
        trainyard.run("delete", name)
        assert waiting.wait(120) == 0
    trainyard.run("wait", name, "--for", "delete")
    name = submit(trainyard, generic("fails", "exit 9"))
    assert "exit code 9" in trainyard.run("wait", name, "--timeout", "120", code=1)
    trainyard.run("wait", name, "--for", "phase=Failed", "--timeout", "120")
    trainyard.run("wait", name, "--for", "phase=Running", "--timeout", "120", code=1)


def test_logs_are_followed_through_a_restart_to_the_end(trainyard: CommandLine) -> None:
    flag = trainyard.folder / "second-time"
    script = f"echo begin; test -e {flag} || {{ touch {flag}; exit 3; }}; echo finished"
    name = submit(trainyard, generic("again", script, limit=1))
    with trainyard.running("logs", "-f", name) as following:
        assert following.wait(120) == 0
        assert following.stdout is not None
        assert following.stdout.read().splitlines()[-2:] == ["begin", "finished"]
    assert trainyard.run("logs", name, "--previous").splitlines() == ["begin"]
    assert trainyard.run("logs", name, "--tail", "1").splitlines() == ["finished"]
    (line,) = trainyard.run("logs", name, "--tail", "1", "--timestamps").splitlines()
    assert line.startswith("20")
    assert line.endswith("Z finished")


@pytest.mark.parametrize("command", [("logs", "-f"), ("wait",), ("events", "--watch")])
def test_ctrl_c_ends_a_command_that_waits(trainyard: CommandLine, command: tuple[str, ...]) -> None:
    name = submit(
        trainyard, generic(f"endless-{command[0]}", "echo up; sleep 3600"), until_phase="Running"
    )
    with trainyard.running(*command, name) as waiting:
        if command[0] == "wait":
            until(lambda: _has_connected(waiting.pid), "the command waits")
        else:
            assert waiting.stdout is not None
            assert waiting.stdout.readline()
        waiting.send_signal(signal.SIGINT)
        output = waiting.communicate(timeout=120)[0]
    assert waiting.returncode == 130
    assert "Traceback" not in output
    trainyard.run("delete", name)


def _has_connected(pid: int) -> bool:
    """Whether a process holds the sockets of a client: an event loop's pair and a connection."""

    def is_socket(descriptor: Path) -> bool:
        try:
            return os.readlink(descriptor).startswith("socket:")
        except FileNotFoundError:  # closed since it was listed
            return False

    return sum(map(is_socket, Path(f"/proc/{pid}/fd").iterdir())) >= 3


def test_logs_into_a_pipe_that_closes_end_quietly(trainyard: CommandLine) -> None:
    script = "for i in $(seq 100000); do echo line $i; done"
    name = submit(trainyard, generic("chatty", script), until_phase="Succeeded")
    following = trainyard.start("logs", name)
    assert following.stdout is not None
    assert following.stdout.readline() == "line 1\n"
    following.stdout.close()
    assert following.wait(120) == 141


def test_logs_outlive_the_pods_of_the_job(trainyard: CommandLine) -> None:
    cleaned = generic("cleaned", "echo kept", cleanUpPolicy="All")
    name = submit(trainyard, cleaned, until_phase="Succeeded")
    enter = ("exec", name, "--", "true")
    until(lambda: "has no pods" in trainyard.run(*enter, code=None), "the pod is deleted")
    assert trainyard.run("logs", name) == "kept\n"


def test_a_job_is_paused_and_resumed(trainyard: CommandLine) -> None:
    name = submit(trainyard, generic("rests", "sleep 3600"), until_phase="Running")
    assert "paused" in trainyard.run("pause", name)
    trainyard.run("wait", name, "--for", "phase=Paused", "--timeout", "120")
    assert "already paused" in trainyard.run("pause", name)
    assert "trainyard resume" in trainyard.run("explain", name)
    assert "resumed" in trainyard.run("resume", name)
    trainyard.run("wait", name, "--for", "phase=Running", "--timeout", "120")
    trainyard.run("delete", name, "--wait")
    done = submit(trainyard, generic("done", "true"), until_phase="Succeeded")
    assert "has ended (Succeeded)" in trainyard.run("pause", done, code=1)


def test_an_elastic_job_is_scaled_within_its_bounds(trainyard: CommandLine) -> None:
    grows = job(
        "grows",
        container={"args": ["-c", "import time; time.sleep(3600)"]},
        torchrunConfig={"enabled": True, "extraOptions": ["--no-python"]},
        elastic={"enabled": True, "minReplicas": 1, "expectedReplicas": 1, "maxReplicas": 2},
        runMode={"pause": {"enabled": True}},
    )
    name = submit(trainyard, grows)
    assert "scaled from 1 to 2 replicas" in trainyard.run("scale", name, "--replicas", "2")
    assert stored(trainyard, name)["spec"]["elastic"]["expectedReplicas"] == 2
    assert "already" in trainyard.run("scale", name, "--replicas", "2")
    assert "allows 1 to 2" in trainyard.run("scale", name, "--replicas", "3", code=1)
    trainyard.run("delete", name)


def test_a_command_runs_in_the_replica_that_was_named(trainyard: CommandLine) -> None:
    name = submit(trainyard, generic("inside", "sleep 3600", replicas=2), until_phase="Running")
    for replica in ("worker-0", "worker-1"):
        output = trainyard.run("exec", name, "--replica", replica, "--", "hostname")
        assert output.strip().endswith(replica)
    trainyard.run("exec", name, "--", "sh", "-c", "exit 7", code=7)
    trainyard.run("exec", name, "--", "no-such-command", code=127)
    assert fed(trainyard, "a\nb\n", "exec", name, "--", "wc", "-l") == (0, "2\n")
    assert fed(trainyard, "echo $((6*7)); exit 4", "exec", name) == (4, "42\n")
    assert "no replica worker-9" in trainyard.run("exec", name, "--replica", "worker-9", code=1)
    trainyard.run("delete", name)


def test_exec_into_a_job_that_does_not_run_says_why_not(trainyard: CommandLine) -> None:
    name = submit(trainyard, generic("over", "true"), until_phase="Succeeded")
    assert "not running (Succeeded)" in trainyard.run("exec", name, "--", "ls", code=1)
    assert "it has ended (Succeeded)" in trainyard.run("stacks", name, code=1)


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, trainyard: CommandLine, *arguments: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(trainyard.folder)
            command = [sys.executable, "-m", "trainyard.cli.main", *arguments]
            os.execve(sys.executable, command, trainyard.environment)
        self.seen = ""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("=HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def expect(self, text: str) -> None:
        """Read until the text was shown, after everything that was expected before."""
        limit = time.monotonic() + 120
        os.set_blocking(self._fd, False)
        while text not in self.seen:
            assert time.monotonic() < limit, f"never shown: {text!r} in {self.seen!r}"
            try:
                self.seen += os.read(self._fd, 4096).decode(errors="replace")
            except BlockingIOError:
                time.sleep(0.01)
        self.seen = self.seen.partition(text)[2]

    def is_raw(self) -> bool:
        return not termios.tcgetattr(self._fd)[3] & termios.ICANON

    def ended(self) -> int:
        """Wait for its end; its exit code."""
        limit = time.monotonic() + 120
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._read_all()
            if pid:
                os.close(self._fd)
                return os.waitstatus_to_exitcode(status)
            assert time.monotonic() < limit, f"does not end: {self.seen!r}"
            time.sleep(0.01)

    def _read_all(self) -> None:
        """What is there; its last words may come with its end."""
        os.set_blocking(self._fd, False)
        with contextlib.suppress(OSError):
            while data := os.read(self._fd, 4096):
                self.seen += data.decode(errors="replace")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def test_a_shell_has_a_real_terminal(trainyard: CommandLine) -> None:
    name = submit(trainyard, generic("shelly", "sleep 3600"), until_phase="Running")
    terminal = Terminal(trainyard, "exec", name, "--", "sh")
    try:
        terminal.type("tty; echo ready-$((1+1))\n")
        terminal.expect("/dev/pts/")
        terminal.expect("ready-2")
        assert terminal.is_raw()
        terminal.resize(101, 37)
        terminal.type("until test \"$(stty size)\" = '37 101'; do sleep 0.05; done; echo sized\n")
        terminal.expect("\nsized")
        # Ctrl-C is for the program in the replica; the connection stays. The program itself says
        # that it runs: a shell that is about to fork loses the signal (52 of 200 in dash 0.5.12).
        terminal.type("sh -c 'echo sleeping; exec sleep 3600'\n")
        terminal.expect("\nsleeping")
        terminal.type("\x03")
        terminal.expect("# ")
        terminal.type("echo still-$((4+4))\n")
        terminal.expect("still-8")
        terminal.type("exit 5\n")
        assert terminal.ended() == 5
    except BaseException:
        terminal.kill()
        raise
    trainyard.run("delete", name)


def test_debug_runs_a_command_in_a_job_that_does_not_train(trainyard: CommandLine) -> None:
    marker = trainyard.folder / "trained"
    file = trainyard.manifest("bug.yaml", generic("bug", f"touch {marker}", replicas=2))
    output = trainyard.run("debug", "-f", file, "--replica", "worker-1", "--", "hostname")
    assert output.splitlines()[1].endswith("worker-1")
    assert "stays in debug mode" in output
    assert stored(trainyard, "bug")["spec"]["runMode"]["debug"]["enabled"] is True
    assert "nothing trains by itself" in trainyard.run("explain", "bug")
    trainyard.run("delete", "bug", "--wait")
    output = trainyard.run("debug", "--rm", "-f", file, "--", "sh", "-c", "exit 6", code=6)
    assert "GenericJob default/bug deleted" in output
    assert not marker.exists()


def test_debug_opens_a_shell_on_a_terminal(trainyard: CommandLine) -> None:
    file = trainyard.manifest("bug.yaml", generic("bug-shell", "true"))
    terminal = Terminal(trainyard, "debug", "--rm", "-f", file)
    try:
        terminal.expect("waiting for its replicas")
        terminal.type("echo here-$((3*3))\n")
        terminal.expect("here-9")
        terminal.type("exit\n")
        assert terminal.ended() == 0
        assert "bug-shell deleted" in terminal.seen
    except BaseException:
        terminal.kill()
        raise


def test_explain_names_missing_devices_and_the_option_for_them(trainyard: CommandLine) -> None:
    greedy = job("greedy", _FOREVER, container={"resources": {"limits": {"nvidia.com/gpu": 99}}})
    name = submit(trainyard, greedy)
    until(lambda: "needs 99" in trainyard.run("explain", name), "the scheduler has refused")
    answer = trainyard.run("explain", name)
    assert "worker-0 cannot be scheduled: needs 99 nvidia.com/gpu" in answer
    assert "trainyard up --resource nvidia.com/gpu=99" in answer
    trainyard.run("delete", name)


def test_explain_reads_a_failure_from_its_exit_code_and_last_lines(trainyard: CommandLine) -> None:
    name = submit(trainyard, job("typo", ["trian"]), until_phase="Failed")
    answer = trainyard.run("explain", name)
    assert "worker-0 failed (exit code 127)\n    the command trian does not exist" in answer
    name = submit(trainyard, job("lost", [sys.executable, "no-script.py"]), until_phase="Failed")
    answer = json.loads(trainyard.run("explain", name, "-o", "json"))
    assert "no-script.py does not exist" in answer["causes"][0]["what"]


def test_explain_tells_when_the_next_try_is(trainyard: CommandLine) -> None:
    looping = generic("looping", "exit 1", limit=1000)
    name = submit(trainyard, looping)
    until(lambda: "the next try is in" in trainyard.run("explain", name), "a restart is delayed")
    trainyard.run("delete", name)


def test_explain_names_a_missing_secret(trainyard: CommandLine) -> None:
    lacking = generic("lacking", "true")
    container = lacking["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    container["envFrom"] = [{"secretRef": {"name": "no-such-secret"}}]
    name = submit(trainyard, lacking)
    until(lambda: "no-such-secret" in trainyard.run("explain", name), "the Secret is missed")
    trainyard.run("delete", name)


def test_a_closed_queue_holds_a_job_until_it_is_opened(trainyard: CommandLine) -> None:
    trainyard.run("queue", "create", "night", "--closed", "--quota", "cpu=1000", "--priority", "3")
    assert "already" in trainyard.run("queue", "create", "night", code=1)
    held = generic("held", "true", scheduler={"t9kScheduler": {"queue": "night"}})
    name = submit(trainyard, held)
    until(lambda: "is closed" in trainyard.run("explain", name), "the queue holds the job")
    assert "trainyard queue open night" in trainyard.run("explain", name)
    (line,) = [x for x in trainyard.run("queue", "list").splitlines() if x.startswith("night ")]
    assert line.split()[1:3] == ["Closed", "3"]
    assert "held" in trainyard.run("queue", "show", "night")
    trainyard.run("queue", "open", "night")
    trainyard.run("wait", name, "--timeout", "120")
    trainyard.run("queue", "close", "night")
    trainyard.run("queue", "delete", "night")
    assert "no queue night; there are: default" in trainyard.run("queue", "show", "night", code=1)


def test_explain_tells_a_queue_that_is_used_up_from_one_that_is_too_small(
    trainyard: CommandLine,
) -> None:
    trainyard.run("queue", "create", "small", "--quota", "cpu=300m")
    names = []
    for name, cpu in (("holds", "200m"), ("wants", "200m"), ("wants-more", "400m")):
        obj = generic(name, "sleep 3600", scheduler={"t9kScheduler": {"queue": "small"}})
        container = obj["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
        container["resources"] = {"requests": {"cpu": cpu}}
        phase = "Running" if name == "holds" else "Pending"
        names.append(submit(trainyard, obj, until_phase=phase))
    until(lambda: "used up" in trainyard.run("explain", "wants"), "the queue holds it back")
    answer = trainyard.run("explain", "wants")
    assert "the quota of queue small is used up" in answer
    assert "200m in use, 200m wanted" in answer
    assert "trainyard queue show small" in answer
    until(lambda: "at all" in trainyard.run("explain", "wants-more"), "the queue refuses it")
    assert "used up" not in trainyard.run("explain", "wants-more")
    trainyard.run("delete", *names)
    trainyard.run("queue", "delete", "small")


def test_events_are_watched_as_they_happen(trainyard: CommandLine) -> None:
    name = submit(trainyard, generic("eventful", "sleep 3600"), until_phase="Running")
    with trainyard.running("events", name, "--watch") as watching:
        assert watching.stdout is not None
        assert any("Created" in line for line in iter(watching.stdout.readline, ""))
        trainyard.run("pause", name)
        assert any("paused" in line for line in iter(watching.stdout.readline, ""))
    assert "Paused" in trainyard.run("events", name)
    trainyard.run("delete", name)


def test_another_namespace_is_another_world(trainyard: CommandLine) -> None:
    there = generic("elsewhere", "true")
    there["metadata"]["namespace"] = "default"
    submit(trainyard, there)
    assert "no jobs in namespace team" in trainyard.run("list", "-n", "team")
    assert "elsewhere" in trainyard.run("list", "-A")
    assert "in namespace team" in trainyard.run("show", "elsewhere", "-n", "team", code=1)


def test_the_same_commands_work_by_kubeconfig(trainyard: CommandLine) -> None:
    where = ("--kubeconfig", str(trainyard.state / "kubeconfig"))
    name = submit(trainyard, generic("remote", "echo far; sleep 3600"), until_phase="Running")
    assert "remote" in trainyard.run("list", *where)
    assert trainyard.run("logs", name, *where) == "far\n"
    assert trainyard.run("exec", name, *where, "--", "echo", "hello") == "hello\n"
    assert "no context 'x'" in trainyard.run("list", *where, "--context", "x", code=1)
    trainyard.run("delete", name, "--wait", *where)


def test_without_a_cluster_every_command_says_how_to_get_one(tmp_path: Path) -> None:
    alone = CommandLine(tmp_path)
    output = alone.run("list", code=1)
    assert output.startswith("error: there is no cluster")
    assert "trainyard up" in output
    assert len(output.splitlines()) == 1
