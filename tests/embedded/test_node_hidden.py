"""What a pod does not see of its own cluster, of other clusters and of the machine."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.node_cluster import Cluster, cluster

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
MASKED = "acpi asound interrupts kcore keys latency_stats sched_debug scsi timer_list timer_stats"


def mounting(source: dict[str, Any], path: str = "/m", **mount: Any) -> dict[str, Any]:
    return {
        "container": {"volumeMounts": [{"name": "v", "mountPath": path, **mount}]},
        "volumes": [{"name": "v", **source}],
    }


async def from_a_home(home: Path) -> None:
    """A cluster below the working folder, as with ``cd ~; trainyard run``."""
    state = home / ".local" / "state" / "trainyard"
    other = home / "others"
    for folder in (state, other):
        folder.mkdir(parents=True)
        (folder / "token").write_text("secret")
    settings: dict[str, Any] = {"working_dir": str(home), "hidden": (str(other),)}
    async with cluster(state, volumes={"home": str(home), "state": str(state)}, **settings) as node:
        await _look(node, home, state, other)
        await _move(node, home, state)
        await _mount(node, home, state)
    assert (state / "token").read_text() == "secret"
    assert (home / "kept").exists()


async def _look(node: Cluster, home: Path, state: Path, other: Path) -> None:
    script = f"""
        ls -A {state} {other}; cat {state}/token {state}/pods/*/*/*.log
        (echo x > {state}/x) && echo written
        echo x > {home}/kept; mkdir /tmp/in && echo x > /tmp/in/x && cat /tmp/in/x
    """
    spec = mounting({"configMap": {"name": "c"}}, f"{home}/.config-map")
    await node.registry.create("configmaps", {"metadata": {"name": "c"}, "data": {"key": "K"}})
    text = await node.shell("look", f"({script}) 2>/dev/null; cat .config-map/key", **spec)
    assert text == f"{state}:\n\n{other}:\nx\nK"


async def _move(node: Cluster, home: Path, state: Path) -> None:
    """A pod must not put another folder in the place of the real one, and lay that open."""
    places = [str(state), str(state.parent), str(state.parent.parent)]
    script = f"""
import os
for place in {places}:
    try: os.rename(place, {str(home / "moved")!r}); print(place)
    except OSError: pass
"""
    await node.run("move", [sys.executable, "-c", script])
    assert await node.log("move") == ""
    assert (state / "token").exists()


async def _mount(node: Cluster, home: Path, state: Path) -> None:
    """Volumes above the folder, the folder itself as one, and paths in it."""
    show = f"ls -A /m/{state.relative_to(home)}"
    for source in (
        {"persistentVolumeClaim": {"claimName": "home"}},
        {"hostPath": {"path": str(home)}},
    ):
        name = next(iter(source)).lower()
        assert await node.shell(name, show, **mounting(source)) == ""
    claim = {"persistentVolumeClaim": {"claimName": "state"}}
    token = {"hostPath": {"path": f"{state}/token"}}
    for name, source in (("claim", claim), ("path", token)):
        pod = await node.run(name, ["true"], **mounting(source))
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert "a cluster's own folder, which pods do not see" in ended["message"]
    (home / "link").symlink_to(state)
    inner = mounting({"hostPath": {"path": str(home)}}, subPath="link/token")
    pod = await node.run("sub-path", ["true"], **inner)
    message = pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"]
    assert "leads out of the volume" in message


async def masked(home: Path) -> None:
    """What the kernel tells of the machine, and what changes it."""
    async with cluster(home / "state", working_dir=str(home)) as node:
        files = " ".join(f"/proc/{name}" for name in MASKED.split())
        script = f"""
            for f in {files} /sys/firmware /sys/devices/virtual/powercap; do
                test -d $f && ls -A $f || cat $f
            done
            for f in /proc/sys/kernel/domainname /proc/sysrq-trigger /sys/kernel/mm/ksm/run; do
                (echo 0 > $f) && echo written $f
            done
            mkdir /sys/fs/cgroup/new && echo made
            echo over
        """
        assert await node.shell("look", f"({script}) 2>/dev/null") == "over\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path("/var/tmp") / f"trainyard-test-{os.getpid()}-hidden"
    made.mkdir()
    made.chmod(0o777)
    yield made
    subprocess.run(["rm", "-rf", str(made)], check=True)


@pytest.mark.parametrize("case", ["from_a_home", "masked"])
async def test_as_root(case: str, folder: Path) -> None:
    await CASES[case](folder)


@pytest.mark.parametrize("case", ["from_a_home", "masked"])
def test_without_root(case: str, folder: Path) -> None:
    as_user = [sys.executable, "-m", "tests.embedded.as_user"]
    result = subprocess.run(
        [*as_user, sys.executable, "-m", __name__, case, str(folder)],
        env={**os.environ, "PYTHONPATH": "src", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr


async def test_a_working_folder_that_is_the_clusters_own_is_refused(folder: Path) -> None:
    async with cluster(folder, working_dir=str(folder)) as node:
        pod = await node.run("job-0", ["true"])
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert "keep the cluster elsewhere (TRAINYARD_STATE_DIR)" in ended["message"]


async def test_what_is_written_outside_of_volumes_has_a_limit(folder: Path) -> None:
    async with cluster(folder / "state", working_dir="/") as node:
        container = {"resources": {"limits": {"ephemeral-storage": "8Mi"}}}
        fill = f"head -c 9M /dev/zero > {shlex.quote(str(folder))}/big"
        script = f"({fill} || head -c 9M /dev/zero > /opt/big) 2>&1; ls -A {folder}"
        text = await node.shell("job-0", script, container=container)
        assert text.count("No space left on device") == 2
        page = os.sysconf("SC_PAGE_SIZE")
        whole = page * os.sysconf("SC_PHYS_PAGES")
        assert not node.events("LayerFull")
        pod = await node.run("full", ["sh", "-c", fill], container=container)
        (warning,) = node.events("LayerFull")
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (ended["exitCode"], ended["message"]) == (1, warning)
        assert warning.startswith("container main has no room left outside of volumes, where it ")
        text = await node.shell("job-1", "stat -f -c '%b %S' /; stat -f -c '%b %S' /dev")
        layer, devices = (int(a) * int(b) for a, b in map(str.split, text.splitlines()))
        assert layer < whole // 4 + page  # the kernel's file systems have whole pages
        assert devices <= 1 << 20


CASES = {"from_a_home": from_a_home, "masked": masked}
if __name__ == "__main__":
    asyncio.run(CASES[sys.argv[1]](Path(sys.argv[2])))
