"""The disk of the state folder is full: jobs can be ended, the server lives, then all goes on."""

from __future__ import annotations

import json

from tests.small_disk import on_small_disk

JOB = """\
apiVersion: batch.tensorstack.dev/v1beta1
kind: GenericJob
metadata: {name: NAME}
spec:
  replicaSpecs:
    - type: worker
      template: {spec: {containers: [{name: main, image: any, command: [sh, -c, 'SCRIPT']}]}}
"""
DRIVER = f"""
import asyncio, os, subprocess, sys, time
from trainyard.kube.client import Client
from trainyard.kube.errors import ApiError
from trainyard.kube.resources import CONFIG_MAPS, PODS

disk = sys.argv[1]
state = os.environ["TRAINYARD_STATE_DIR"] = disk + "/state"
os.chdir(disk)

def trainyard(*words):
    command = [sys.executable, "-m", "trainyard.cli.main", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        sys.exit(f"{{words}}: {{done.returncode}}: {{done.stdout}}{{done.stderr}}")
    return done.stdout

def submit(name, script):
    with open(name + ".yaml", "w") as file:
        file.write({JOB!r}.replace("NAME", name).replace("SCRIPT", script))
    trainyard("submit", "-f", name + ".yaml")

def until(what, condition):
    limit = time.monotonic() + 180
    while not condition():
        if time.monotonic() > limit:
            sys.exit(f"never: {{what}}; " + trainyard("list"))
        time.sleep(0.2)

def last_line(job):
    lines = trainyard("logs", job, "--tail", "1").split()
    return int(lines[-1]) if lines and lines[-1].isdigit() else -1

def fill(ballast):
    for size in (1 << 16, 1):
        try:
            while True:
                ballast.write(bytes(size))
        except OSError:
            pass

async def refusal():
    async with Client.unix(state + "/api.sock") as client:
        for number in range(1000):
            try:
                obj = {{"metadata": {{"name": f"c{{number}}"}}, "data": {{"x": "y" * 100_000}}}}
                await client.create(CONFIG_MAPS, obj, "default")
            except ApiError as error:
                return error
    sys.exit("nothing was refused")

async def pods():
    async with Client.unix(state + "/api.sock") as client:
        found, _ = await client.list(PODS, "default")
        return sorted(pod["metadata"]["name"].split("-")[0] for pod in found)

trainyard("up")
try:
    loop = "while true; do i=$((i+1)); echo $i; "
    submit("talks", loop + "sleep 0.01; done")
    submit("other", loop + "sleep 0.01; done")
    submit("waits", "until test -e go; do sleep 0.1; done")
    until("all run", lambda: trainyard("list").count("Running") == 3)
    until("talks", lambda: last_line("talks") > 0)
    open("go.later", "w").close()
    ballast = open("ballast", "wb", buffering=0)
    fill(ballast)
    error = asyncio.run(refusal())
    print(error.code, error.reason, error)
    fill(ballast)
    trainyard("delete", "other", "--yes")
    until("its pods are gone", lambda: asyncio.run(pods()) == ["talks", "waits"])
    os.rename("go.later", "go")
    until("waits succeeds", lambda: "Succeeded" in trainyard("list"))
    seen = last_line("talks")
    print("running", trainyard("list").count("Running"))
    os.ftruncate(ballast.fileno(), 0)
    until("talks goes on", lambda: last_line("talks") > max(seen, 0))
    submit("after", "true")
    until("after succeeds", lambda: trainyard("list").count("Succeeded") == 2)
finally:
    log = open(state + "/cluster.log").read()
    trainyard("down")
print(log)
"""


def test_jobs_end_on_a_full_disk_and_with_room_all_goes_on_by_itself() -> None:
    with on_small_disk(DRIVER, "size=64m") as (_, done):
        assert done.returncode == 0, done.stdout + done.stderr
    refused, running, *log = done.stdout.splitlines()
    assert refused.startswith("507 InsufficientStorage ")
    assert "/disk/state is full: no space left on device; make room there" in refused
    assert running == "running 1"
    told = "\n".join(log)
    assert "Objects can be deleted, but none created" in told
    assert "there is room again" in told
    assert "Traceback" not in told


TELLING = f"""
import json, os, signal, subprocess, sys, time

disk = sys.argv[1]
state = os.environ["TRAINYARD_STATE_DIR"] = disk + "/state"
os.chdir(disk)
said = {{}}

def trainyard(*words):
    command = [sys.executable, "-m", "trainyard.cli.main", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return [done.returncode, done.stdout + done.stderr]

def fill():
    for size in (1 << 16, 1):
        try:
            while True:
                ballast.write(bytes(size))
        except OSError:
            pass

def tell(when, *words):
    fill()
    said[f"{{when}}: {{words[0]}}"] = trainyard(*words)

with open("job.yaml", "w") as file:
    file.write({JOB!r}.replace("NAME", "long").replace("SCRIPT", "sleep 600"))
with open("more.yaml", "w") as file:
    file.write({JOB!r}.replace("NAME", "more").replace("SCRIPT", "true"))
trainyard("up")
try:
    said["submitted"] = trainyard("submit", "-f", "job.yaml")
    said["runs"] = trainyard("wait", "long", "--for", "phase=Running")
    ballast = open("ballast", "ab", buffering=0)
    pid = json.load(open(state + "/cluster.json"))["pid"]
    tell("up", "submit", "-f", "more.yaml")
    tell("up", "doctor")
    tell("up", "status")
    tell("up", "restart")
    said["pid"] = [int(pid != json.load(open(state + "/cluster.json"))["pid"]), ""]
    os.kill(pid, signal.SIGKILL)
    tell("killed", "status")
    tell("killed", "doctor")
    tell("killed", "up")
    os.ftruncate(ballast.fileno(), 0)
    said["room"] = trainyard("up")
    said["list"] = trainyard("list")
    said["more"] = trainyard("wait", "more")
finally:
    trainyard("down")
print(json.dumps(said))
"""


def test_on_a_full_disk_commands_say_so_and_lose_nothing() -> None:
    with on_small_disk(TELLING, "size=64m") as (_, done):
        assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    room = "No space left on device; make room there; what is stored stays"
    for when, (code, words) in {
        "submitted": (0, ""),
        "runs": (0, ""),
        "up: submit": (0, "created"),  # there is room for it in what is set aside
        "up: doctor": (1, "make room: objects and logs are written there"),
        "up: status": (0, "the disk of the state folder is full; make room"),
        "up: restart": (1, room),
        "pid": (0, ""),
        "killed: status": (3, "it was killed"),
        "killed: doctor": (1, "the disk is full: make room there; what is stored stays"),
        "killed: up": (1, f"{room}, and replicas that run go on"),
        "room": (0, "the cluster is up"),
        "list": (0, "Running"),
        "more": (0, ""),
    }.items():
        assert said[when][0] == code, (when, said[when])
        assert words in said[when][1], (when, said[when])
    assert "Traceback" not in done.stdout
    assert "cannot write the output" not in done.stdout
    assert "move" not in said["killed: doctor"][1]
