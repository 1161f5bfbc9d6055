"""The same pods as an unprivileged user, and where namespaces are forbidden."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.embedded.node_cluster import cluster, is_alive, processes_with
from tests.embedded.test_node_zygote import zygote_of
from trainyard.embedded.node.pod_runtime_process import start_pod_runtime

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")


async def rootless(state: Path) -> None:
    """Runs as the unprivileged user: everything a pod has, it has without root."""
    work = state / "work"
    work.mkdir(parents=True)
    handle = start_pod_runtime(state / "state", die_with_parent=True)
    async with cluster(state / "state", handle=handle, working_dir=str(work)) as node:
        assert node.agent.isolation == "rootless"
        text = await node.shell(
            "one", "hostname; id -u; echo kept > kept; ls /proc | grep -c '^[0-9]'"
        )
        assert text.split()[:2] == ["one", str(os.getuid())]
        assert int(text.split()[2]) < 10
        assert (work / "kept").exists()
        volume = {
            "volumes": [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}],
            "container": {
                "volumeMounts": [
                    {"name": "v", "mountPath": "/opt/not/there"},
                    {"name": "v", "mountPath": "/run/sub", "subPath": "sub"},
                ]
            },
        }
        script = (
            "stat -f -c %T /opt/not/there; touch /run/sub/x && ls /opt/not/there/sub; mkdir /new"
        )
        assert await node.shell("two", script, **volume) == "tmpfs\nx\n"
        await node.registry.create("configmaps", {"metadata": {"name": "c"}, "data": {"k": "own"}})
        files = {
            "volumes": [{"name": "v", "configMap": {"name": "c"}}],
            "container": {"volumeMounts": [{"name": "v", "mountPath": "/opt/files"}]},
        }
        script = "stat -f -c %T /opt/files /etc/hosts; cat /opt/files/k"
        assert await node.shell("files", script, **files) == "tmpfs\ntmpfs\nown"
        closed = {
            "volumes": [{"name": "v", "emptyDir": {}}],
            "container": {
                "volumeMounts": [{"name": "v", "mountPath": f"{state.parent}/closed/in"}]
            },
        }
        assert await node.shell("three", f"touch {state.parent}/closed/in/x", **closed) == ""
        serve = "import socket;s=socket.create_server(('',80));c,_=s.accept();c.sendall(b'hi')"
        place = {"subdomain": "net"}
        await node.create("j-0", [sys.executable, "-c", serve], hostname="j-0", **place)
        ask = (
            "import socket,time\nwhile True:\n"
            "    try: print(socket.create_connection(('j-0',80)).recv(9)); break\n"
            "    except OSError: time.sleep(0.01)\n"
        )
        await node.run("j-1", [sys.executable, "-c", ask], hostname="j-1", **place)
        assert await node.log("j-1") == "b'hi'\n"
        os.kill(await zygote_of(handle.pid), signal.SIGKILL)  # its heir may do as much
        assert await node.shell("four", "grep CapEff /proc/self/status; hostname") == (
            "CapEff:\t0000000000000000\nfour\n"
        )
        await node.create("left", ["sh", "-c", "setsid sleep 1001 & exec sleep 1001"])
        await node.phase("left", "Running")
        assert await node.exec("left", "hostname") == (0, "left\n")
    assert not [pid for pid in processes_with("sleep\x001001") if is_alive(pid)]


async def plain(state: Path) -> None:
    """Runs where no namespace is permitted: processes with an address of their own."""
    work = state / "work"
    work.mkdir(parents=True)
    async with cluster(state / "state", working_dir=str(work)) as node:
        assert node.agent.isolation == "plain"
        assert "not permitted" in node.agent.isolation_reason
        volume = {
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
            "container": {
                "volumeMounts": [{"name": "v", "mountPath": "/not/there"}],
                "env": [{"name": "OUT", "value": "/not/there/out"}],
            },
        }
        script = "echo $OUT; echo x > /not/there/file; cat '/not/there'/file /not/therefore 2>&1"
        await node.run("one", ["sh", "-c", script], **volume)
        folder = state / "state" / "volumes" / "default" / "c"
        text = await node.log("one")
        assert text.startswith(f"{folder}/out\nx\n")
        assert "/not/therefore" in text
        assert "/not/there is" in node.events("VolumeNotMounted")[0]
        pod = await node.run("two", ["sh", "-c", "exit 3"])
        assert pod["status"]["podIP"].startswith("127.")
        assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
        await node.create("left", ["sh", "-c", "setsid sleep 1002 & exec sleep 1002"])
        await node.phase("left", "Running")
        await node.registry.delete("pods", "default", "left")
        await node.gone("left")
        assert not processes_with("sleep\x001002")


@pytest.mark.parametrize("case", ["rootless", "plain"])
def test_pods_run_without_root(case: str) -> None:
    folder = Path("/var/tmp") / f"trainyard-test-{os.getpid()}-{case}"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "closed").mkdir(mode=0o700)
    as_user = [sys.executable, "-m", "tests.embedded.as_user"]
    if case == "plain":
        as_user.append("--forbid-namespaces")
    try:
        result = subprocess.run(
            [*as_user, sys.executable, "-m", __name__, case, str(folder)],
            env={**os.environ, "PYTHONPATH": "src", "HOME": str(folder)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert result.returncode == 0, result.stderr
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)


if __name__ == "__main__":
    asyncio.run({"rootless": rootless, "plain": plain}[sys.argv[1]](Path(sys.argv[2]) / "node"))
