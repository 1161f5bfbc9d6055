"""Attempts that need more than one container: links in claims, commands, probes, bombs.

Each is judged from outside too: the machine has not changed, and another pod goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import shutil
import sys
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from tests.embedded.node_cluster import Cluster, are_limits_enforced
from tests.escape.machine import Machine, judge_victim
from trainyard.embedded.cluster_objects import Deletion
from trainyard.podruntime.log_files import LogLimits
from trainyard.schema.errors import TrainyardError

Play = Callable[[Machine, Cluster], Awaitable[None]]
Object = dict[str, Any]
LOGS = LogLimits(1 << 20, 2)
_MEMORY = 64 << 20
_LIMITED = {"resources": {"limits": {"memory": str(_MEMORY)}}}


class Scene(NamedTuple):
    """``not_promised``: the phrase of docs/security.md that says so, if it does."""

    name: str
    play: Play
    not_promised: str = ""


SCENES: list[Scene] = []


def scene(not_promised: str = "") -> Callable[[Play], Play]:
    def add(play: Play) -> Play:
        SCENES.append(Scene(play.__name__, play, not_promised))  # type: ignore[attr-defined]
        return play

    return add


async def play(machine: Machine, isolation: str) -> None:
    """One after the other, on one cluster; all that fail are told."""
    failed = []
    (machine.folder / "data").mkdir()
    data = {"data": str(machine.folder / "data")}
    settings = {"log_limits": LOGS, "restart_delay": 0.05, "volumes": data}
    async with machine.cluster(**settings) as node:
        assert node.agent.isolation == isolation
        for name, act, _ in SCENES:
            try:
                await act(machine, node)
                await judge_victim(node)
            except (AssertionError, TrainyardError, TimeoutError) as error:
                failed.append(f"{name}: {error!r}")
        await _end_all(node)
        _forget(machine)
    assert not failed, "\n".join(failed)


async def _end_all(node: Cluster) -> None:
    names = [pod["metadata"]["name"] for pod in node.registry.list("pods")]
    for name in names:
        if name != "victim":
            await node.registry.delete("pods", "default", name, Deletion(grace_seconds=0))
    for name in names:
        if name != "victim":
            await node.gone(name)


def _forget(machine: Machine) -> None:
    """What was made where it may be."""
    shutil.rmtree(machine.folder / "data")


async def ended(node: Cluster, name: str, script: str, **spec: Any) -> str:
    """Run a script to its end, however that is; returns its log, "" if it was never started."""
    await node.create(name, ["sh", "-c", script], **spec)
    return await told(node, name)


async def told(node: Cluster, name: str) -> str:
    with contextlib.suppress(TrainyardError):
        await node.until(name, lambda pod: _is_over(node, pod))
        return await node.log(name)
    return ""


def _is_over(node: Cluster, pod: Object) -> bool:
    """It has ended, or is refused again and again."""
    name, phase = pod["metadata"]["name"], pod["status"].get("phase")
    return phase in ("Succeeded", "Failed") or name in pods_with(node, "NodeError", "FailedMount")


def pods_with(node: Cluster, *reasons: str) -> set[str]:
    """The pods that have an event for one of these reasons."""
    events = node.registry.list("events")
    return {e["involvedObject"]["name"] for e in events if e["reason"] in reasons}


def text_of(machine: Machine, name: str) -> str:
    (log,) = machine.state.glob(f"pods/default_{name}_*/main/0.log")
    return log.read_text()


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def claiming(*mounts: Object, **container: Any) -> Object:
    """The claim ``data``, and an emptyDir ``empty``, mounted like this."""
    return {
        "container": {"volumeMounts": [{"name": "data", **each} for each in mounts], **container},
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "empty", "emptyDir": {}},
        ],
    }


AT_DATA = {"mountPath": "/data"}


# -- links ----------------------------------------------------------------------------------------


@scene()
async def links_in_a_claim_lead_nowhere(machine: Machine, node: Cluster) -> None:
    """CVE-2017-1002101."""
    outside = machine.outside
    links = f"ln -s {outside} out; ln -s ../outside up; ln -s / top; ln -s /proc/self/root magic"
    await ended(node, "links", f"cd /data; {links}; mkdir plain", **claiming(AT_DATA))
    inner = ["out", "up", f"top{outside}", f"magic{outside}", "out/made", "plain/../up"]
    script = "touch /m/escaped; mkdir /m/folder; cat /m/secret"
    tries = [
        ended(
            node, f"link-{n}-{field.lower()}", script, **claiming({"mountPath": "/m", field: path})
        )
        for n, path in enumerate(inner)
        for field in ("subPath", "subPathExpr")
    ]
    for n, path in enumerate(("/data/out", "/data/up/made", f"/data/top{outside}/made")):
        below = {"name": "empty", "mountPath": path}
        tries.append(ended(node, f"point-{n}", f"touch {path}/x", **claiming(AT_DATA, below)))
        work = claiming(AT_DATA, workingDir=path)
        tries.append(ended(node, f"work-{n}", "touch escaped; mkdir folder", **work))
    assert not any("of the machine" in text for text in await asyncio.gather(*tries))
    assert [path.name for path in outside.iterdir()] == ["secret"]


@scene()
async def a_folder_that_turns_into_a_link_is_not_followed(machine: Machine, node: Cluster) -> None:
    """CVE-2021-25741."""
    script = (
        "import ctypes, os\n"
        f"os.chdir('/data'); os.mkdir('race'); os.symlink('{machine.outside}', 'to')\n"
        "while True: ctypes.CDLL(None).renameat2(-100, b'race', -100, b'to', 2)\n"
    )
    await node.create("swapper", python(script), **claiming(AT_DATA))
    await node.phase("swapper", "Running")
    tries = [
        ended(
            node, f"race-{n}", "touch /m/escaped", **claiming({"mountPath": "/m", "subPath": path})
        )
        for n, path in enumerate(["race", "race/made", "race/made/deep"] * 5)
    ]
    await asyncio.gather(*tries)
    await node.registry.delete("pods", "default", "swapper", Deletion(grace_seconds=0))
    await node.gone("swapper")
    assert [path.name for path in machine.outside.iterdir()] == ["secret"]


@scene()
async def configuration_is_not_written_through_a_link(machine: Machine, node: Cluster) -> None:
    """When a container starts again its files are written again."""
    metadata = {"name": "again", "namespace": "default"}
    await node.registry.create("configmaps", {"metadata": metadata, "data": {"key": "escaped"}})
    script = (
        f"rm -f /c/key; ln -s {machine.canary} /c/key; "
        "[ -e /data/again ] || { touch /data/again; exit 1; }"
    )
    spec = claiming(AT_DATA, {"name": "c", "mountPath": "/c"})
    spec["volumes"].append({"name": "c", "configMap": {"name": "again"}})
    await ended(node, "again", script, restartPolicy="OnFailure", **spec)
    assert machine.canary.read_text() == "untouched"


@scene()
async def a_last_message_is_not_taken_from_elsewhere(machine: Machine, node: Cluster) -> None:
    secret = machine.outside / "secret"
    await ended(node, "plant", f"ln -s {secret} /data/message", **claiming(AT_DATA))
    for n, path in enumerate(("/data/message", f"/../../..{secret}", "/proc/self/cwd/message")):
        spec = claiming(AT_DATA, terminationMessagePath=path)
        await ended(node, f"message-{n}", f"echo escaped > {path}; exit 3", **spec)
        (status,) = node.pod(f"message-{n}")["status"]["containerStatuses"]
        assert "of the machine" not in status["state"]["terminated"].get("message", "")
    assert secret.read_text() == "of the machine"


@scene()
async def a_huge_last_message_is_cut(machine: Machine, node: Cluster) -> None:
    script = "head -c 100000 /dev/zero | tr '\\0' x > /dev/termination-log; "
    await ended(node, "huge-message", f"{script} truncate -s 1T /dev/termination-log; exit 3")
    (status,) = node.pod("huge-message")["status"]["containerStatuses"]
    assert len(status["state"]["terminated"].get("message", "")) <= 4096


@scene()
async def a_descriptor_is_no_way_to_the_working_folder(machine: Machine, node: Cluster) -> None:
    """CVE-2024-21626."""
    script = (
        "import os\n"
        "top = os.stat('/')\n"
        "try: open('escaped', 'w').close()\n"
        "except OSError: pass\n"
        "for _ in range(64): os.chdir('..')\n"
        "here = os.stat('.')\n"
        "print((top.st_dev, top.st_ino) == (here.st_dev, here.st_ino))\n"
    )
    folders = [f"/proc/self/fd/{n}" for n in range(3, 16)]
    folders += [
        "/proc/1/cwd",
        "/proc/self/cwd/../../..",
        "/proc/self/root",
        "/proc/1/root",
        "/dev/fd/9",
    ]
    names = [f"descriptor-{n}" for n in range(len(folders))]
    for name, folder in zip(names, folders, strict=True):
        await node.create(name, python(script), container={"workingDir": folder})
    logs = [await told(node, name) for name in names]
    assert not any("False" in text for text in logs)


@scene()
async def names_are_not_paths(machine: Machine, node: Cluster) -> None:
    away = "../../../../outside"
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": away}}
    volume = {"name": away, "emptyDir": {}}
    specs: list[Object] = [
        {"container": {"volumeMounts": [{"name": "v", "mountPath": "/m"}]}, "volumes": [claim]},
        {"container": {"volumeMounts": [{"name": away, "mountPath": "/m"}]}, "volumes": [volume]},
        {"container": {"name": away}},
        {"metadata": {"name": away}},
        {"metadata": {"namespace": away}},
        {"metadata": {"uid": away}},
    ]
    for n, spec in enumerate(specs):
        with contextlib.suppress(TrainyardError):
            await ended(node, f"name-{n}", "touch /m/escaped", **spec)
    assert [path.name for path in machine.outside.iterdir()] == ["secret"]


# -- processes ------------------------------------------------------------------------------------


@scene()
async def killing_everybody_kills_oneself(machine: Machine, node: Cluster) -> None:
    junk = "for f in /proc/1/fd/*; do case $(readlink $f) in pipe:*) echo x >$f;; esac; done"
    scripts = ["kill -9 -1", "kill -STOP -1", "kill -USR1 1; kill -9 1", f"{junk}; sleep 0.1"]
    for n, script in enumerate(scripts):
        await node.create(f"killer-{n}", ["bash", "-c", f"{script}; exit 0".replace("$", "$$")])
    for n in range(len(scripts)):
        await node.phase(f"killer-{n}", "Succeeded", "Failed", "Running")
    await node.shell("after-killers", "true")


# Looks into every process as soon as it is there, before it has become what it is to be.
_CATCH = """
import os, sys
own = os.stat("/")
known, caught = set(os.listdir("/proc")), 0
print("ready", flush=True)
while not os.path.exists("/tmp/enough"):
    for pid in set(filter(str.isdigit, os.listdir("/proc"))) - known:
        caught += 1
        for _ in range(200):
            try:
                root = os.stat(f"/proc/{pid}/root/")
                if (root.st_dev, root.st_ino) != (own.st_dev, own.st_ino):
                    print("found a root", flush=True)
                for fd in os.listdir(f"/proc/{pid}/fd"):
                    link = os.readlink(f"/proc/{pid}/fd/{fd}")
                    if int(fd) > 2 and link.startswith(("socket", "mnt", "/memfd", "pid", "net")):
                        print("found", link, flush=True)
            except FileNotFoundError:
                break
            except OSError:
                continue
print("caught", caught > 0, flush=True)
"""


@scene()
async def a_command_that_comes_in_is_not_caught(machine: Machine, node: Cluster) -> None:
    await node.create("catcher", python(_CATCH))
    await node.phase("catcher", "Running")
    await node.printed("catcher")
    for _ in range(8):
        await asyncio.gather(*(node.exec("catcher", "sleep 0.2") for _ in range(3)))
    assert (await node.exec("catcher", "touch /tmp/enough"))[0] == 0
    text = await told(node, "catcher")
    assert text == "ready\ncaught True\n", text


@scene()
async def a_command_has_only_its_own_streams(machine: Machine, node: Cluster) -> None:
    script = "for n in $(seq 3 99); do test -e /proc/self/fd/$n && echo $n; done; true"
    assert await node.exec("victim", script) == (0, "")


@scene()
async def nothing_can_be_typed_into_the_terminal_of_a_command(
    machine: Machine, node: Cluster
) -> None:
    script = "import fcntl, termios\nfcntl.ioctl(0, termios.TIOCSTI, b'x')\n"
    session = await node.agent.exec(node.pod("victim"), "main", python(script), tty=True)
    text = b"".join([chunk.data async for chunk in session.output()]).decode()
    assert await session.wait() == 1
    assert "not permitted" in text
    await session.close()


# -- what the cluster does for a pod --------------------------------------------------------------


@scene()
async def probes_do_not_reach_the_machine(machine: Machine, node: Cluster) -> None:
    port = machine.situation["port"]
    names = set()
    for host in ("127.0.0.1", machine.situation["address"], "localhost"):
        for kind in ("tcpSocket", "httpGet"):
            act = {kind: {"host": host, "port": port}}
            container = {
                "livenessProbe": {**act, "periodSeconds": 1, "failureThreshold": 1},
                "lifecycle": {"postStart": act},
            }
            names.add(f"probe-{len(names)}")
            await node.create(f"probe-{len(names) - 1}", ["sleep", "60"], container=container)
    wanted = "FailedPostStartHook", "Unhealthy"
    await node.until("victim", lambda _: names <= pods_with(node, *wanted))


@scene()
async def who_answers_without_end_fills_no_memory(machine: Machine, node: Cluster) -> None:
    """A command's output and a server's answer, for as long as a hook may take."""
    script = (
        "import socket\n"
        "server = socket.create_server(('0.0.0.0', 8080))\n"
        "while True:\n"
        "    one = server.accept()[0]\n"
        "    try:\n"
        "        while True: one.sendall(bytes(1 << 20))\n"
        "    except OSError: pass\n"
    )
    probes = {
        "talker": {"exec": {"command": ["cat", "/dev/zero"]}},
        "server": {"httpGet": {"port": 8080}},
    }
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, probe in probes.items():
        every = {"timeoutSeconds": 3, "periodSeconds": 1, "failureThreshold": 100}
        container = {"livenessProbe": {**probe, **every}}
        await node.create(name, python(script), container=container)
    await node.until("victim", lambda _: probes.keys() <= pods_with(node, "Unhealthy"))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    assert grown < 200, f"{grown} MiB"
    for name in probes:
        await node.registry.delete("pods", "default", name, Deletion(grace_seconds=0))


@scene()
async def folders_without_end_are_removed(machine: Machine, node: Cluster) -> None:
    script = (
        "import os\n"
        "for place in ('/tmp', '/data'):\n"
        "    os.chdir(place)\n"
        "    for _ in range(1200): os.mkdir('d' * 100); os.chdir('d' * 100)\n"
    )
    empty = {"name": "empty", "mountPath": "/data"}
    await node.run("digger", python(script), **claiming(empty))
    assert node.pod("digger")["status"]["phase"] == "Succeeded", await node.log("digger")
    await node.registry.delete("pods", "default", "digger", Deletion(grace_seconds=0))
    await node.gone("digger")
    assert not list(machine.state.glob("pods/default_digger_*/tmp"))


# -- bombs ----------------------------------------------------------------------------------------


@scene("| use more memory or CPU than its limits |")
async def memory_is_limited(machine: Machine, node: Cluster) -> None:
    """Whatever it is taken by: the program, files in memory, very many very small ones."""
    if not are_limits_enforced():
        return
    small = "for n in range(10**6): open(f'/dev/shm/{n}', 'w').close()"
    scripts = [
        python("x = []\nwhile True: x.append(bytes(1 << 20))"),
        ["sh", "-c", "head -c 1G /dev/zero > /dev/shm/x"],
        ["sh", "-c", "head -c 1G /dev/zero > /opt/x"],
        python(small),
        python("import mmap, os\nm = mmap.mmap(-1, 1 << 30)\nwhile True: m.write(bytes(1 << 20))"),
    ]
    for n, script in enumerate(scripts):
        await node.create(f"memory-{n}", script, container=_LIMITED)
    for n in range(len(scripts)):
        await node.phase(f"memory-{n}", "Failed")


@scene()
async def folders_in_memory_are_limited(machine: Machine, node: Cluster) -> None:
    volume = {"name": "e", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}}
    mount = {"volumeMounts": [{"name": "e", "mountPath": "/e"}]}
    spec = {"volumes": [volume], "container": mount}
    assert "No space left" in await ended(node, "volume", "head -c 16M /dev/zero > /e/x", **spec)
    layer = {"resources": {"limits": {"ephemeral-storage": "8Mi"}}}
    script = "head -c 16M /dev/zero > /opt/x"
    assert "No space left" in await ended(node, "layer", script, container=layer)
    assert "No space left" in await ended(node, "devices", "head -c 1G /dev/zero > /dev/x")


@scene("| fill the disk of its working folder, `/tmp` and volumes | no | no | no | no |")
async def disks_are_not_limited(machine: Machine, node: Cluster) -> None:
    """Neither by the size of an emptyDir that is not in memory."""
    volume = {"name": "e", "emptyDir": {"sizeLimit": "1Mi"}}
    mount = {"volumeMounts": [{"name": "e", "mountPath": "/e"}]}
    await ended(node, "disk", "head -c 2M /dev/zero > /e/x", volumes=[volume], container=mount)


@scene()
async def logs_are_limited(machine: Machine, node: Cluster) -> None:
    await ended(node, "flood", "yes | head -c 20M; head -c 5M /dev/zero")
    (folder,) = machine.state.glob("pods/default_flood_*/main")
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert size <= LOGS.size * (LOGS.files + 1)


@scene()
async def descriptors_of_others_are_not_used_up(machine: Machine, node: Cluster) -> None:
    """By files, pipes and eventfds of several processes, as many as each may have."""
    script = (
        "import os, time\n"
        "for _ in range(3): os.fork()\n"
        "try:\n"
        "    for _ in range(20000): os.eventfd(0)\n"
        "except OSError: pass\n"
        "print('full', flush=True); time.sleep(60)\n"
    )
    await node.create("files", python(script))
    await node.phase("files", "Running")
    await node.until("files", lambda _: text_of(machine, "files").count("full") == 8)
    assert await node.shell("beside-files", "echo well < /dev/null | cat") == "well\n"


@scene("what the kernel counts for each user")
async def what_is_counted_by_user(machine: Machine, node: Cluster) -> None:
    """inotify instances, timers and message queues: pods of the same user share them."""
    script = (
        "import ctypes, time\n"
        "libc, made = ctypes.CDLL(None), 0\n"
        "while made < 1000 and libc.inotify_init() >= 0: made += 1\n"
        "print('full', flush=True); time.sleep(60)\n"
    )
    await node.create("watcher", python(script))
    await node.phase("watcher", "Running")
    await node.printed("watcher")
    await node.registry.delete("pods", "default", "watcher", Deletion(grace_seconds=0))


@scene()
async def what_crashes_writes_nothing_outside(machine: Machine, node: Cluster) -> None:
    """Where the kernel writes memory to a file, that is a file of the pod."""
    script = "ulimit -c unlimited; sh -c 'kill -SEGV $$$$'; true"
    await ended(node, "crash", script, container={"workingDir": "/"})
