"""Launches over ssh that cannot start: each is told by its reason, and none goes on for ever."""

from __future__ import annotations

import os
import signal

import pytest

from tests.embedded.deepspeed_job import KIND, SHOW, spec, worker
from tests.embedded.launching import Jobs, Object, jobs_with, sshd_processes
from trainyard import diagnosis
from trainyard.api.diagnosis_inputs import situation_of
from trainyard.cli.commands.explain import render
from trainyard.client.job_view import Job
from trainyard.kinds.kind_registry import KINDS
from trainyard.kube.resources import CONFIG_MAPS

LISTEN = "import socket, time; s = socket.create_server(('', 2222)); time.sleep(3600)"
"""Holds sshd's port."""
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="changes users and system files")


jobs = jobs_with("deepspeed", "pdsh", "sshd", "ssh")


async def file_at(jobs: Jobs, name: str, path: str, text: str) -> Object:
    """A worker's template in which a file is at this path."""
    template = worker(volumeMounts=[])
    template["spec"]["volumes"] = []
    await add_file(jobs, template, name, path, text)
    return template


async def add_file(jobs: Jobs, template: Object, name: str, path: str, text: str) -> None:
    """One more, of the ConfigMap of that name."""
    metadata = {"name": name}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"file": text}}
    await jobs.client.create(CONFIG_MAPS, body, "default")
    spec = template["spec"]
    mount = {"name": name, "mountPath": path, "subPath": "file"}
    spec["containers"][0]["volumeMounts"].append(mount)
    spec["volumes"].append({"name": name, "configMap": {"name": name}})


def beside(template: Object, *argv: str) -> Object:
    """The template with a sidecar that has started before the others."""
    sidecar = {"name": "sidecar", "image": "image", "command": [*argv], "restartPolicy": "Always"}
    template["spec"]["initContainers"] = [sidecar]
    return template


LIMIT_SECONDS = 22
SILENT_SSHD = "#!/bin/sh\nexec sleep inf\n"
NAME_SERVER = """\
import socket, time
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
time.sleep(3600)
"""
"""Takes questions, and answers none."""


async def unfit(jobs: Jobs) -> dict[str, tuple[Object, str]]:
    """Templates with which a pod ends before anything is launched, and what it says."""
    account = "root:x:0:0:root:/root:/usr/sbin/nologin\nsshd:x:100:1::/run/sshd:/bin/false\n"
    full = worker(volumeMounts=[{"name": "full", "mountPath": "/t9k/run"}])
    full["spec"]["volumes"] = [
        {"name": "full", "emptyDir": {"medium": "Memory", "sizeLimit": "1Ki"}}
    ]
    bare = worker(securityContext={"capabilities": {"drop": ["ALL"]}})
    return {
        "port": (
            beside(worker(), "python3", "-c", LISTEN),
            "another container of the pod may hold the port",
        ),
        "rights": (bare, "sshd of root needs the capabilities SETGID"),
        "account": (
            worker(securityContext={"runAsUser": 4321}, workingDir="/"),
            "has no entry in /etc/passwd",
        ),
        "shell": (await file_at(jobs, "shell", "/etc/passwd", account), "has no login shell"),
        "disk": (full, "cannot prepare ssh: "),
    }


async def waiting(jobs: Jobs) -> dict[str, tuple[Object, str]]:
    """Templates with which a launch waits for ever, and for what."""
    account = "root:x:0:0:root:/root:/usr/bin/true\nsshd:x:100:1::/run/sshd:/bin/false\n"
    lonely = "127.0.0.1 localhost\n"
    dumb = beside(await file_at(jobs, "dns", "/etc/hosts", lonely), "python3", "-c", NAME_SERVER)
    await add_file(jobs, dumb, "resolver", "/etc/resolv.conf", "nameserver 127.0.0.1\n")
    alone = await file_at(jobs, "hosts", "/etc/hosts", lonely)
    await add_file(jobs, alone, "no-dns", "/etc/nsswitch.conf", "hosts: files\n")
    silent = await file_at(jobs, "silent", "/usr/sbin/sshd", SILENT_SSHD)
    silent["spec"]["volumes"][0]["configMap"]["defaultMode"] = 0o755
    hanging = jobs.folder / "hanging"
    hanging.mkdir()
    (hanging / "deepspeed").write_text("#!/bin/sh\nexec sleep inf\n")
    (hanging / "deepspeed").chmod(0o755)
    path = {"name": "PATH", "value": f"{hanging}:{os.environ['PATH']}"}
    return {
        "hangs": (worker(env=[path]), "deepspeed was started, but no rank has begun"),
        "unknown": (alone, "its name cannot be found"),
        "slow-dns": (dumb, "the name server does not answer"),
        "silent": (silent, "Connection refused"),
        "ends": (
            await file_at(jobs, "ends", "/etc/passwd", account),
            "its session ended with exit code 0",
        ),
    }


EXPLAINED = {
    "port": "the port of its sshd is taken by another container of its pod",
    "disk": "a volume or the disk is full",
}
"""In words of its own."""


@needs_root
async def test_what_cannot_start_is_named_and_ends(jobs: Jobs) -> None:
    """All at once, since they mostly wait. What another try cannot mend is not tried again."""
    jobs.script("show.py", SHOW)
    templates, patient = await unfit(jobs), await waiting(jobs)
    for name, (template, _) in (templates | patient).items():
        policy = {"launchTimeoutSeconds": LIMIT_SECONDS, "backoffLimit": 1}
        restarts = "Never" if name in patient else "OnFailure"
        job = spec(
            {"python": ["show.py"]}, template=template, restart_policy=restarts, runPolicy=policy
        )
        await jobs.submit(KIND, name, job)
    for name, (_, told) in patient.items():
        job = await jobs.until(KIND, name, lambda job: bool(launched(job)))
        assert told in launched(job)["message"], name
        text = await explained(jobs, job)
        assert "its launch has not started for" in text, text
        assert told in text, text
    for name, (_, told) in (templates | patient).items():
        status = await jobs.fail(KIND, name)
        failure = next(c for c in status["conditions"] if c["type"] == "ReplicaFailure")
        assert told in failure["message"], name
        text = await explained(jobs, await jobs.job(KIND, name))
        assert EXPLAINED.get(name, told) in text, text
        assert "nothing is wrong" not in text, text
        assert status["backoffCount"] == (1 if name in ("port", "disk") else 0), name


async def explained(jobs: Jobs, job: Object) -> str:
    """What `trainyard explain` says."""
    found = await situation_of(jobs.client, Job(KINDS[KIND], job), jobs.folder)
    return render(found, diagnosis.causes(found))


def launched(job: Object) -> Object:
    """The condition of the launch, once there is one."""
    conditions = job.get("status", {}).get("conditions", ())
    return next((c for c in conditions if c["type"] == "Launched"), {})


@needs_root
async def test_what_a_preflight_finds_is_the_condition_of_the_launch(jobs: Jobs) -> None:
    (jobs.folder / "here").mkdir()
    (jobs.folder / "here" / "show.py").write_text(SHOW)
    template = worker(workingDir="/here", volumeMounts=[{"name": "here", "mountPath": "/here"}])
    template["spec"]["volumes"] = [{"name": "here", "emptyDir": {}}]
    copy = f"case $(hostname) in *-0) cp {jobs.folder}/here/show.py /here;; esac"
    init = {"name": "init", "image": "image", "command": ["/bin/sh", "-c", copy]}
    init["volumeMounts"] = [{"name": "here", "mountPath": "/here"}]
    template["spec"]["initContainers"] = [init]
    await jobs.submit(KIND, "lacks", spec({"python": ["show.py"]}, template=template))
    # Each replica has another version of a package.
    await jobs.submit(KIND, "differs", spec({"python": ["wait.py"]}, template=differing(jobs)))
    status = await jobs.fail(KIND, "lacks")
    failure = next(c for c in status["conditions"] if c["type"] == "ReplicaFailure")
    assert "missing are show.py on worker-1" in failure["message"]
    told = launched({"status": status})
    assert (told["status"], told["reason"]) == ("False", "PreflightFailed")
    assert "its preflight failed; missing are show.py on worker-1." in told["message"]
    assert "SHOW" not in await jobs.logs()
    job = await jobs.until(KIND, "differs", lambda job: launched(job).get("status") == "True")
    told = launched(job)
    differences = "colossalai differs: 1.0 on worker-0; 1.1 on worker-1"
    text = f"The launch has started, but its hosts differ: {differences}."
    assert (told["reason"], told["message"]) == ("HostsDiffer", text)
    assert differences in await explained(jobs, job)
    (jobs.folder / "go").touch()
    await jobs.succeed(KIND, "differs")


def differing(jobs: Jobs) -> Object:
    """A template whose replicas have different versions of a package, by its metadata."""
    jobs.script(
        "wait.py", "import os, time\nwhile not os.path.exists('go'):\n    time.sleep(0.1)\n"
    )
    mount = {"name": "fake", "mountPath": "/fake"}
    env = [{"name": "PYTHONPATH", "value": "/fake"}]
    template = worker(volumeMounts=[mount], env=env)
    template["spec"]["volumes"] = [{"name": "fake", "emptyDir": {}}]
    write = (
        "host=$(hostname); info=/fake/colossalai-1.${host##*-}.dist-info; mkdir $info; "
        "printf 'Metadata-Version: 2.1\\nName: colossalai\\nVersion: 1.%s\\n' ${host##*-} "
        "> $info/METADATA"
    )
    init = {"name": "init", "image": "image", "command": ["/bin/sh", "-c", write]}
    init["volumeMounts"] = [mount]  # type: ignore[assignment]
    template["spec"]["initContainers"] = [init]
    return template


@needs_root
async def test_a_bashrc_has_no_say_in_a_launch(jobs: Jobs) -> None:
    """Neither in whether a session begins, nor in what is in its environment."""
    template = await file_at(jobs, "rc", "/root/.bashrc", "export LITERAL=theirs\nexit 3\n")
    template["spec"]["containers"][0]["env"] = [{"name": "LITERAL", "value": "ours"}]
    command = "echo it is $(ssh worker-1 printenv LITERAL)"
    await jobs.submit(KIND, "dj", spec(config={"customCommand": command}, template=template))
    await jobs.succeed(KIND, "dj")
    assert "it is ours" in await jobs.logs()


@needs_root
@pytest.mark.skipif("TRAINYARD_SOAK" not in os.environ, reason="starts deepspeed itself")
async def test_an_option_that_deepspeed_does_not_know_ends_the_launch(jobs: Jobs) -> None:
    config = {"otherArgs": ["--nonsense"]}
    jobs.script("show.py", SHOW)
    await jobs.submit(KIND, "dj", spec({"python": ["show.py"]}, config=config))
    await jobs.fail(KIND, "dj")
    assert "deepspeed ended with exit code 2" in await jobs.logs()
    text = await explained(jobs, await jobs.job(KIND, "dj"))
    assert "does not know the arguments --nonsense" in text, text


async def test_an_sshd_that_is_killed_is_named(jobs: Jobs) -> None:
    await jobs.submit(KIND, "dj", spec(config={"customCommand": "touch begun; sleep inf"}))
    await jobs.until(KIND, "dj", lambda _: (jobs.folder / "begun").exists())
    os.kill(sshd_processes(jobs)[-1], signal.SIGKILL)
    status = await jobs.fail(KIND, "dj")
    failure = next(c for c in status["conditions"] if c["type"] == "ReplicaFailure")
    assert "sshd was killed by signal 9" in failure["message"]
