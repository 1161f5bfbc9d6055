"""The disk of the state folder is full: jobs can be ended, the server lives, then all goes on."""

from __future__ import annotations

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
