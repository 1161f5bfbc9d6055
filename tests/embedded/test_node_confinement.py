"""What keeps a pod's programs in: asked from inside, as root and as an unprivileged user."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.node_cluster import Cluster, are_limits_enforced, cluster, eventually
from tests.tools import require
from trainyard.embedded.cluster_objects import Deletion
from trainyard.podruntime import protocol

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

# Each attempt answers True if it succeeded, else the number of the error.
ATTEMPTS = """
import ctypes, errno, json, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    ctypes.set_errno(0)
    return getattr(libc, name)(*arguments) >= 0 or ctypes.get_errno()
def attempt(what):
    try: what(); return True
    except OSError as error: return error.errno
print(json.dumps({
    "look at the first process's memory": attempt(lambda: open("/proc/1/mem", "rb")),
    "read the first process's environment": attempt(lambda: open("/proc/1/environ").read()),
    "take a file of the first process": attempt(lambda: os.readlink("/proc/1/fd/2")),
    "trace the first process": call("ptrace", 16, 1, 0, 0),
    "mount": call("mount", b"none", b"/mnt", b"tmpfs", 0, None),
    "unmount": call("umount2", b"/proc", 2),
    "a new user namespace": call("unshare", 0x10000000),
    "a new name for the host": call("sethostname", b"x", 1),
    "a device": attempt(lambda: os.mknod("/tmp/device", 0o60600, os.makedev(254, 0))),
    "keys": call("syscall", *map(ctypes.c_long, (SYS_KEYCTL, 0, -3, 1))),
    "the kernel's log": call("klogctl", 3, ctypes.create_string_buffer(9), 8),
    "the clock": attempt(lambda: __import__("time").clock_settime(0, 1e9)),
    "a kernel setting": attempt(lambda: open("/proc/sys/kernel/core_pattern", "w")),
    "the magic key": attempt(lambda: open("/proc/sysrq-trigger", "w")),
    "a host setting": attempt(lambda: open("/sys/kernel/mm/ksm/run", "w")),
}))
""".replace("SYS_KEYCTL", {"x86_64": "250", "aarch64": "219"}.get(os.uname().machine, "-1"))

LIMIT = 40

# Forks until it is refused, and then keeps trying beside what it has.
BOMB = """
import os, time
made, refused = 0, 0
while made < 1000 and refused < 100:
    try:
        if not os.fork():
            time.sleep(60)
            os._exit(0)
        made += 1
    except BlockingIOError:
        refused += 1
print(made, refused > 0, flush=True)
"""

NAMESPACE = "readlink /proc/self/ns/user"


def python(script: str) -> list[str]:
    # Variables are expanded in a command; `$` is not used in what is run here.
    return [sys.executable, "-c", script]


def succeeded(answers: dict[str, Any]) -> list[str]:
    return [what for what, answer in answers.items() if answer is True]


async def judge_attempts(node: Cluster) -> None:
    await node.run("attempts", python(ATTEMPTS))
    answers = json.loads(await node.log("attempts"))
    assert len(answers) == 15
    assert succeeded(answers) == []


async def judge_old_root(node: Cluster) -> None:
    """Before its old root is unmounted a container would find it at `/..`."""
    for number in range(10):
        await node.run(f"up-{number}", ["stat", "-c", "%d:%i", "/", "/.."])
        own, above = (await node.log(f"up-{number}")).split()
        assert own == above


async def judge_namespaces(node: Cluster) -> None:
    await node.create("one", ["sh", "-c", f"{NAMESPACE}; exec sleep 60"])
    await node.phase("one", "Running")
    other = await node.shell("two", NAMESPACE)
    code, text = await node.exec("one", f"{NAMESPACE}; grep -E 'Seccomp:|CapEff' /proc/self/status")
    entered, *facts = text.split()
    assert code == 0
    assert entered == (await node.log("one")).strip()
    assert len({entered, other.strip(), os.readlink("/proc/self/ns/user")}) == 3
    capabilities = "00000000a00465fb" if node.agent.isolation == "root" else "0" * 16
    assert facts == ["CapEff:", capabilities, "Seccomp:", "2"]
    code, text = await node.exec("one", shlex.join(python(ATTEMPTS)))
    assert code == 0, text
    assert succeeded(json.loads(text)) == []


async def judge_tracing(node: Cluster) -> None:
    """Debuggers work on the pod's own processes."""
    script = (
        "import ctypes,os,subprocess\n"
        "libc = ctypes.CDLL(None)\n"
        "child = subprocess.Popen(['sleep','60'])\n"
        "print(libc.ptrace(16, child.pid, 0, 0))\n"
        "print(os.listdir(f'/proc/{child.pid}/fd') != [])\n"
        "child.kill()\n"
    )
    await node.run("debug", python(script))
    assert await node.log("debug") == "0\nTrue\n"


async def judge_processes(node: Cluster) -> None:
    """A fork bomb ends at its limit; others start beside it, and it is killed as any other."""
    beside = f"{BOMB}\ntime.sleep(60)"
    for number in range(2):
        await node.create(f"bomb-{number}", python(beside))
        await node.phase(f"bomb-{number}", "Running")
    await node.shell("beside", "(sleep 0 & sleep 0 & wait)")
    for number in range(2):
        name = f"bomb-{number}"
        await node.printed(name)
        made, refused = (await node.log(name)).split()
        assert LIMIT // 2 < int(made) < LIMIT + 300  # numbers that are not given out twice
        assert refused == "True"
    for number in range(2):
        await node.registry.delete("pods", "default", f"bomb-{number}", Deletion(grace_seconds=0))
        await node.gone(f"bomb-{number}")


async def judge(node: Cluster, isolation: str) -> None:
    assert (node.agent.isolation, node.agent.isolation_reason) == (isolation, "")
    await judge_attempts(node)
    await judge_old_root(node)
    await judge_namespaces(node)
    await judge_tracing(node)
    await judge_processes(node)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Cluster]:
    (tmp_path / "work").mkdir()
    work = str(tmp_path / "work")
    async with cluster(tmp_path / "state", working_dir=work, pids_limit=LIMIT) as running:
        yield running


async def test_what_a_pod_cannot_do_as_root(node: Cluster) -> None:
    await judge(node, "root")


async def rootless(folder: Path) -> None:
    work = folder / "work"
    work.mkdir()
    async with cluster(folder / "state", working_dir=str(work), pids_limit=LIMIT) as node:
        await judge(node, "rootless")


def test_what_a_pod_cannot_do_without_root() -> None:
    folder = Path("/var/tmp") / f"trainyard-test-{os.getpid()}-confined"
    folder.mkdir()
    folder.chmod(0o777)
    as_user = [sys.executable, "-m", "tests.embedded.as_user"]
    try:
        result = subprocess.run(
            [*as_user, sys.executable, "-m", __name__, "rootless", str(folder)],
            env={**os.environ, "PYTHONPATH": "src", "HOME": str(folder)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert result.returncode == 0, result.stderr
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)


async def test_root_in_a_pod_is_still_root_there(node: Cluster, tmp_path: Path) -> None:
    """It changes users and owners, opens raw sockets and changes its root, as sshd does."""
    script = (
        "import os, socket\n"
        "print(open('/proc/self/uid_map').read().split())\n"
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()\n"
        "open('file', 'w').close(); os.chown('file', 1234, 4321)\n"
        "os.setgroups([7]); os.chroot('.'); os.chdir('/')\n"
        "os.setresgid(4321, 4321, 4321); os.setresuid(1234, 1234, 1234)\n"
        "open('file', 'w').close()\n"
        "print(os.getuid(), os.getgroups(), os.listdir('/'))\n"
    )
    await node.run("job-0", python(script))
    own = Path("/proc/self/uid_map").read_text().split()
    expected = [own[0], own[0], own[2]]
    assert await node.log("job-0") == f"{expected}\n1234 [7] ['file']\n"
    status = (tmp_path / "work" / "file").stat()
    assert (status.st_uid, status.st_gid) == (1234, 4321)


async def test_programs_that_gain_their_owners_rights_do_so(node: Cluster) -> None:
    """As sudo does; unless new privileges are given up."""
    script = (
        "cp $(readlink -f $(command -v id)) /opt/id && chmod 4755 /opt/id && "
        "exec setpriv --reuid 4242 --regid 4242 --clear-groups /opt/id"
    ).replace("$", "$$")
    assert "euid=0" in await node.shell("job-0", script)
    context = {"securityContext": {"allowPrivilegeEscalation": False}}
    assert "euid=0" not in await node.shell("job-1", script, container=context)


@pytest.mark.parametrize(
    ("context", "own_namespace", "filtered"),
    [
        ({}, True, True),
        ({"capabilities": {"add": ["NET_ADMIN", "SYS_PTRACE"]}}, True, True),
        ({"capabilities": {"add": ["SYS_ADMIN"]}}, False, True),
        ({"capabilities": {"add": ["SYS_NICE"]}}, False, True),
        ({"seccompProfile": {"type": "Unconfined"}}, True, False),
        ({"runAsUser": 4242}, True, True),
        ({"privileged": True}, False, False),
    ],
    ids=["nothing", "inside", "admin", "nice", "unconfined", "user", "privileged"],
)
async def test_who_asks_for_what_is_not_had_inside_stays_outside(
    node: Cluster, context: dict[str, Any], own_namespace: bool, filtered: bool
) -> None:
    script = f"{NAMESPACE}; grep Seccomp: /proc/self/status"
    container = {"securityContext": context, "workingDir": "/"}
    text = await node.shell("job-0", script, container=container)
    namespace, _, mode = text.split()
    assert (namespace != os.readlink("/proc/self/ns/user")) == own_namespace
    assert mode == ("2" if filtered else "0")


async def test_capabilities_that_are_added_work(node: Cluster) -> None:
    add = {"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}
    flag = "import socket,fcntl,struct\ns=socket.socket()\n"
    flag += "fcntl.ioctl(s, 0x8914, struct.pack('16sh14x', b'eth0', 0))\nprint('down')"
    await node.run("network", python(flag), container=add)
    assert await node.log("network") == "down\n"
    add = {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}
    assert await node.shell("mounts", "mount -t tmpfs x /mnt && echo yes", container=add) == "yes\n"


async def test_a_container_at_its_limit_of_processes_is_told(tmp_path: Path) -> None:
    """Where a control group counts them: always, where there is no namespace to do so."""
    if not are_limits_enforced():
        pytest.skip("control groups cannot be written here")
    state, work = tmp_path / "state", str(tmp_path)
    async with cluster(state, working_dir=work, pids_limit=LIMIT, isolation="plain") as node:
        await node.run("bomb", python(BOMB))
        made, _ = (await node.log("bomb")).split()
        assert int(made) < LIMIT
        (text,) = node.events("PidsLimitReached")
        assert text.startswith(f"container main may have {LIMIT} processes and threads")
        assert "2" in await node.shell("calm", "grep Seccomp: /proc/self/status")
        assert len(node.events("PidsLimitReached")) == 1


@pytest.fixture
def unified_group() -> Iterator[str]:
    for top in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        if os.path.exists(f"{top}/cgroup.procs") and os.access(top, os.W_OK):
            folder = f"{top}/trainyard-test-{os.getpid()}"
            os.mkdir(folder)
            yield folder
            os.rmdir(folder)
            return
    pytest.skip("there is no control group of version 2 to write")


async def test_a_container_is_born_in_its_control_group(tmp_path: Path, unified_group: str) -> None:
    """To join it afterwards would wait for all processors."""
    async with cluster(tmp_path / "state", isolation="plain") as node:
        argv, log = ("cat", "/proc/self/cgroup"), str(tmp_path / "0.log")
        env = {"PATH": os.environ["PATH"]}
        program = protocol.Program(argv, env, str(tmp_path), cgroups=(unified_group,))
        request = node.agent._runtime.request
        await request(protocol.AddPod("one", "one", ""))
        await request(protocol.Start("one", "main", 0, log, program))
        await eventually(lambda: os.path.exists(log) and "0::" in Path(log).read_text())
        await request(protocol.RemovePod("one"))
    assert f"0::/{os.path.basename(unified_group)}\n" in Path(log).read_text()


def test_a_child_is_born_in_a_control_group(unified_group: str) -> None:
    script = (
        "import os, sys\n"
        "from trainyard.podruntime import syscalls\n"
        "pid = syscalls.clone_into(os.open(sys.argv[1], os.O_PATH), 0)\n"
        "if not pid:\n"
        "    text = open('/proc/self/cgroup').read()\n"
        "    os._exit(0 if '0::/' + os.path.basename(sys.argv[1]) in text else 1)\n"
        "wait_for_all = 0x40000000\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, wait_for_all)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, unified_group])
    assert done.returncode == 0


async def unseparated(folder: Path) -> None:
    async with cluster(folder / "state", working_dir=str(folder)) as node:
        assert node.agent.isolation == "root"
        assert "user namespace" in node.agent.isolation_reason
        text = await node.shell("one", f"{NAMESPACE}; grep Seccomp: /proc/self/status")
        assert text.split() == [os.readlink("/proc/self/ns/user"), "Seccomp:", "2"]


def test_without_user_namespaces_pods_share_the_hosts_and_it_is_told(tmp_path: Path) -> None:
    """In one of the test's own, in which the number of further ones is limited."""
    limit = "echo 0 > /proc/sys/user/max_user_namespaces && exec "
    argv = [sys.executable, "-m", __name__, "unseparated", str(tmp_path)]
    result = subprocess.run(
        [require("unshare"), "--user", "--map-root-user", "sh", "-c", f'{limit}"$@"', "sh", *argv],
        env={**os.environ, "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr


if __name__ == "__main__":
    asyncio.run({"rootless": rootless, "unseparated": unseparated}[sys.argv[1]](Path(sys.argv[2])))
