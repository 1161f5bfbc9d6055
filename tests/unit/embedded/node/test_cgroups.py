"""Control groups of several clusters on one machine: each keeps its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.embedded.node.containers.cgroups import (
    ClusterGroups,
    ContainerLimits,
    default_pids_limit,
)
from trainyard.podruntime.processes.confinement import has_process_numbers

SOME = ContainerLimits(memory=1 << 30, cpu=0, processes=100)


@pytest.fixture
def groups(tmp_path: Path) -> ClusterGroups:
    made = ClusterGroups(str(tmp_path / "one"))
    if not made.create("probe", SOME):
        pytest.skip("control groups cannot be written here")
    return made


def test_a_cluster_that_starts_leaves_the_empty_groups_of_others(
    groups: ClusterGroups, tmp_path: Path
) -> None:
    """One of a container that was just killed for its memory is empty, and has yet to be read."""
    folders = groups.create("job-0", SOME)
    ClusterGroups(str(tmp_path / "two"))
    assert all(os.path.isdir(folder) for folder in folders)
    groups.close()
    assert not any(os.path.exists(folder) for folder in folders)


def test_what_a_killed_cluster_left_is_removed(groups: ClusterGroups, tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "from trainyard.embedded.node.containers.cgroups import ClusterGroups, ContainerLimits\n"
        f"print(*ClusterGroups(sys.argv[1]).create('job-0', {SOME!r}))\n"
        "sys.stdout.flush(); os.kill(os.getpid(), 9)\n"
    )
    argv = [sys.executable, "-c", script, str(tmp_path / "killed")]
    left = subprocess.run(argv, capture_output=True, text=True).stdout.split()
    assert left
    assert all(os.path.isdir(folder) for folder in left)
    ClusterGroups(str(tmp_path / "two"))
    assert not any(os.path.exists(folder) for folder in left)
    groups.close()


def test_each_limit_is_written_where_its_hierarchy_is(groups: ClusterGroups) -> None:
    written = {
        Path(folder, name).read_text().strip()
        for folder in groups.create("job-0", SOME, is_plain=True)
        for name in ("pids.max", "memory.max", "memory.limit_in_bytes")
        if Path(folder, name).exists()
    }
    assert written == {"100", str(1 << 30)}
    assert SOME.unenforced(groups.create("job-0", SOME)) == []
    assert SOME.unenforced([]) == ["memory"]
    groups.close()


def test_no_group_is_made_for_what_the_namespace_counts(groups: ClusterGroups) -> None:
    made = groups.create("job-0", ContainerLimits(memory=0, cpu=0, processes=100))
    assert bool(made) != has_process_numbers()
    groups.close()


def test_one_container_gets_no_more_than_half_of_the_processes_that_there_can_be() -> None:
    most = int(Path("/proc/sys/kernel/pid_max").read_text())
    assert 0 < default_pids_limit() <= most // 2
