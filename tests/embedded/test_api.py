"""The Python API: real clusters, from scripts of their own, as users write them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainyard
from tests.embedded.command_line import PATIENCE_SECONDS, CommandLine, job, shell, until


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    """A state folder for this process too, and whatever it takes to clean up."""
    line = CommandLine(tmp_path)
    for name in ("TRAINYARD_STATE_DIR", "PYTHON_MARK_OF_TEST"):
        monkeypatch.setenv(name, line.environment[name])
    yield line
    line.kill_everything()


def script(line: CommandLine, text: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a Python script in the folder of a test."""
    (line.folder / "script.py").write_text(text)
    return subprocess.Popen(
        [sys.executable, "script.py", *arguments],
        cwd=line.folder,
        env=line.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


# Without torch's own optimizer and DistributedDataParallel, which import its compiler: that takes
# each replica longer than everything else.
_TRAIN = """\
import os
import torch
import torch.distributed as dist
import trainyard

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x):
        return self.layer(x)

def loss_of(model, rank):
    return model(torch.full((4, 2), float(rank))).pow(2).mean()

def train(steps, rate=0.01):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model, world = Net(), dist.get_world_size()
    for _ in range(steps):
        model.zero_grad()
        loss_of(model, dist.get_rank()).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.data -= rate * parameter.grad / world
    dist.destroy_process_group()
    return world, {name: value.tolist() for name, value in model.state_dict().items()}

if __name__ == "__main__":
    world, weights = trainyard.run(train, (3,), {"rate": 0.1}, replicas=4)
    print("trained by", world, sorted(weights))
"""


def test_a_function_is_trained_on_four_replicas_from_a_script(line: CommandLine) -> None:
    output = script(line, _TRAIN).communicate(timeout=PATIENCE_SECONDS)[0]
    assert output.endswith("trained by 4 ['layer.bias', 'layer.weight']\n"), output
    assert "Traceback" not in output
    until(lambda: not line.processes(), "nothing is left of its cluster")


def test_actions_on_jobs(line: CommandLine) -> None:
    waiting = "echo hello; until [ -e go ]; do sleep 0.1; done; echo bye"
    device = {"resources": {"limits": {"example.com/device": 1}}}
    path = line.manifest("job.yaml", job("a", shell(waiting), container=device))
    options: trainyard.ClusterOptions = {"resources": {"example.com/device": "1"}}
    with trainyard.Client(cluster="private", options=options) as client:
        [submitted] = client.submit(path)
        assert str(client.wait(submitted, "phase=Running")) == "PyTorchTrainingJob default/a"
        lines = client.logs("a", follow=True)
        assert next(lines) == ("worker-0", "hello")
        (line.folder / "go").touch()
        assert [each.text for each in lines] == ["bye"]
        assert client.wait("a").phase == "Succeeded"
        [again] = client.submit(job("a", shell("exit 3")), replace=True)
        assert again.uid != submitted.uid
        with pytest.raises(trainyard.JobFailed, match="default/a: Failed") as failed:
            client.wait(again)
        assert failed.value.job.phase == "Failed"
        client.delete("a")
        client.wait_until_gone("a")
        client.wait_until_gone(again)
        client.wait_until_gone(each for each in ("a", again, "absent"))
        with pytest.raises(trainyard.JobNotFound, match="there is no job a"):
            client.delete("a")
        assert client.delete("a", missing_ok=True) == []
        client.submit(job("b", shell("sleep 1000")))
        client.wait("b", "phase=Running")
        with pytest.raises(trainyard.WaitTimeout, match="gave up after"):
            client.wait("b", timeout=0.1)
        assert client.exec("b", ["sh", "-c", "cat; echo no >&2; exit 4"], stdin=b"yes") == (
            *(4, b"yes", b"no\n"),
        )
        assert client.exec("b", "echo 'two words'").stdout == b"two words\n"
        assert [job.name for job in client.list(["pj"])] == ["b"]
        assert [job.name for job in client.list("pj")] == ["b"]
        assert client.list(selector="team=a") == []
        assert [pod.replica for pod in client.get("b").ordered_pods()] == ["worker-0"]
        assert any(event["reason"] == "Created" for event in client.events("b"))
        assert (client.pause("b"), client.pause("b"), client.resume("b")) == (True, False, True)
        with pytest.raises(trainyard.CommandError, match="it is not elastic"):
            client.scale("b", 2)
        client.create_queue("night", quota={"cpu": "2"}, closed=True)
        client.open_queue("night")
        assert client.queue("night")["spec"]["closed"] is False
        assert "night" in [queue["metadata"]["name"] for queue in client.queues()]
        client.delete_queue("night")
        with pytest.raises(trainyard.CommandError, match="there is no queue night"):
            client.queue("night")
        [waiting] = client.submit(job("c", ["true"]), debug=True)
        assert client.running_replica(waiting) == "worker-0"
        with pytest.raises(trainyard.InvalidManifest, match="spec: is required"):
            client.submit("apiVersion: batch.tensorstack.dev/v1beta1\nkind: PyTorchTrainingJob\n")
    until(lambda: not line.processes(), "nothing is left of its cluster")


async def test_the_asynchronous_client_takes_one_or_several(line: CommandLine) -> None:
    async with trainyard.AsyncClient(cluster="private") as client:
        submitted = [*await client.submit(job("a", ["true"])), *await client.submit(job("b", []))]
        for jobs in ("a", submitted[1], iter(["a", submitted[1]])):
            await client.delete(jobs, missing_ok=True)
        for jobs in ("a", submitted[1], iter(["a", submitted[1]])):
            await client.wait_until_gone(jobs)
        assert await client.list("pj") == []


def test_a_cluster_that_cannot_be_is_refused_with_the_reason(line: CommandLine) -> None:
    wrong: trainyard.ClusterOptions = {"resources": {"example.com/device": "many"}}
    with pytest.raises(trainyard.CommandError, match="is not a resource and an amount"):
        trainyard.Client(cluster="private", options=wrong).list()
    closed: trainyard.ClusterOptions = {"network": "none", "allowed_ports": [5432]}
    with pytest.raises(trainyard.CommandError, match="--allow-port needs --network open"):
        trainyard.Client(cluster="private", options=closed).list()
    with pytest.raises(trainyard.CommandError, match="start one with `trainyard up`"):
        trainyard.Client(cluster="running").list()


def test_an_exception_of_a_replica_is_raised_here(line: CommandLine) -> None:
    def fail(codes: list[int]) -> None:
        raise LookupError(codes)

    def die() -> None:
        import os

        os._exit(7)

    with trainyard.Client(cluster="private") as client:
        with pytest.raises(LookupError) as raised:
            client.run(fail, ([1, 2],), replicas=2)
        assert raised.value.args == ([1, 2],)
        assert isinstance(raised.value.__cause__, trainyard.RemoteTraceback)
        assert "raise LookupError(codes)" in str(raised.value.__cause__)
        assert raised.value.__notes__[0].startswith("raised by rank ")
        with pytest.raises(trainyard.JobFailed, match="exit code 7") as failed:
            client.run(die)
        with pytest.raises(LookupError, match="one text"):
            client.run(fail, "one text")
        assert failed.value.card is not None
        assert failed.value.card.replica == "worker-0"
        assert failed.value.object.startswith("PyTorchTrainingJob default/die-")
        with pytest.raises(trainyard.CommandError, match=r"ran a function, .* call it again"):
            client.rerun(failed.value.job)


def test_a_function_is_carried_to_a_cluster_of_a_kubeconfig(line: CommandLine) -> None:
    line.run("up")
    (line.folder / "own").mkdir()
    (line.folder / "own" / "helper.py").write_text("def triple(x):\n    return 3 * x\n")
    text = """
import sys
import trainyard
sys.path.append("own")
import helper

def train(x):
    print("in it", flush=True)
    return helper.triple(x) + b"." * 20_000

with trainyard.Client(kubeconfig=sys.argv[1]) as client:
    try:
        client.run(train, (b"a",))
    except trainyard.CommandError as error:
        print(error)
    found = client.run(train, (b"a",), replicas=2, image="any", env={"PYTHONPATH": ""})
    print(len(found), found[:4])
    try:
        client.run(train, (2,), image="any")
    except TypeError as error:
        print(error.__notes__)
"""
    try:
        output = script(line, text, line.run("kubeconfig").strip()).communicate()[0]
        assert "name the image that the replicas run on the cluster: image=" in output
        assert "20003 b'aaa.'\n" in output, output
        assert "['raised by rank 0 of PyTorchTrainingJob default/train-" in output
        assert output.count("[worker-1] in it") == 1
        assert "trainyard:" not in output
    finally:
        line.run("down")


def test_a_variable_of_this_process_reaches_a_function_and_a_script(line: CommandLine) -> None:
    """By a Secret, which goes with the job; one that is not set is refused at once."""
    line.run("up")
    line.environment["WORD"] = "hunter2"
    (line.folder / "say.sh").write_text('echo "a script has $WORD"\nsleep 3600\n')
    text = """
import os
import trainyard

def tell():
    return os.environ["WORD"]

with trainyard.Client() as client:
    print("a function has", client.run(tell, env={"WORD": None}))
    try:
        client.run(tell, env={"NOT_SET_ANYWHERE": None})
    except trainyard.CommandError as error:
        print(error)
    manifest = trainyard.propose("say.sh", env={"WORD": None})
    assert "hunter2" not in manifest
    [job] = client.submit(manifest)
    assert "hunter2" not in str(job.spec)
"""
    try:
        output = script(line, text).communicate()[0]
        assert "a function has hunter2\n" in output, output
        assert "env: NOT_SET_ANYWHERE is not set in this process; give it a value" in output
        until(lambda: "a script has hunter2" in line.run("logs", "say", code=None), "it says so")
    finally:
        line.run("down")


_INTRUDER = """
import base64, os, pickle, sys, zlib
import trainyard

class Intruder:
    def __reduce__(self):
        return os.mkdir, (os.path.abspath("owned"),)

text = base64.b64encode(zlib.compress(pickle.dumps(Intruder(), 4))).decode()
sample = "\\n".join(
    f"\\x1etrainyard:{seal}{name} {identity}1/1 {text}"
    for name in ("failure-9", "result", "failure-0")
    for seal, identity in (("", ""), ("0" * 64 + " ", "0" * 16 + " "))
)

def train(text, fails):
    print("sample:", text, flush=True)
    if fails:
        raise ValueError("cannot parse the sample")
    return "own result"

with trainyard.Client(kubeconfig=sys.argv[1] if sys.argv[1:] else None) as client:
    print(client.run(train, (sample, False), image="any"))
    try:
        client.run(train, (sample, True), image="any")
    except ValueError as error:
        print("raised:", error)
"""


@pytest.mark.parametrize("named", [True, False], ids=["kubeconfig", "embedded"])
def test_what_a_function_prints_is_not_taken_for_its_result(line: CommandLine, named: bool) -> None:
    line.run("up")
    try:
        arguments = [line.run("kubeconfig").strip()] if named else []
        output = script(line, _INTRUDER, *arguments).communicate(timeout=PATIENCE_SECONDS)[0]
        assert "\nown result\n" in output, output
        assert "\nraised: cannot parse the sample\n" in output, output
        assert output.count("\x1etrainyard:failure-9 1/1 ") == 2, "it is shown like any text"
        assert not (line.folder / "owned").exists()
    finally:
        line.run("down")


def test_a_client_that_is_never_closed_ends_with_its_program(line: CommandLine) -> None:
    text = """
import os
import trainyard
client = trainyard.Client(cluster="private")
print(client.list())
if not os.fork():
    try:
        client.list()
    except trainyard.CommandError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
print("end")
"""
    output = script(line, text).communicate(timeout=PATIENCE_SECONDS)[0]
    assert output.startswith("[]\nthis client was made before a fork, and its connections belong")
    assert output.endswith("\nend\n")
    assert "ResourceWarning" not in output
    until(lambda: not line.processes(), "nothing is left of its cluster")


def test_an_interruption_ends_the_job_and_the_cluster(line: CommandLine) -> None:
    process = script(
        line,
        "import time, trainyard\n"
        "def train():\n    print('in it', flush=True)\n    time.sleep(1000)\n"
        "try:\n    trainyard.run(train)\nexcept KeyboardInterrupt:\n    print('interrupted')\n",
    )
    assert process.stdout is not None
    for text in process.stdout:
        if "in it" in text:
            process.send_signal(signal.SIGINT)
            break
    assert process.communicate(timeout=PATIENCE_SECONDS)[0].endswith("interrupted\n")
    until(lambda: not line.processes(), "nothing is left of its cluster")


def test_a_killed_caller_leaves_nothing(line: CommandLine) -> None:
    process = script(
        line,
        "import time, trainyard\n"
        "def train():\n    print('in it', flush=True)\n    time.sleep(1000)\n"
        "trainyard.run(train)\n",
    )
    assert process.stdout is not None
    until(lambda: "in it" in process.stdout.readline(), "it runs")
    process.kill()
    process.communicate()
    until(lambda: not line.processes(), "nothing is left of its cluster")
