"""The shared hosts files: who is in them, and that a running pod sees changes."""

from __future__ import annotations

from pathlib import Path

from trainyard.local.node.hosts import Host, HostsFiles


def entries(files: HostsFiles, subdomain: str) -> dict[str, str]:
    """Name to address, as a resolver reads the file."""
    found = {}
    for line in Path(files.path(("ns", subdomain))).read_text().splitlines():
        address, *names = line.split()
        found |= dict.fromkeys(names, address)
    return found


def test_pods_of_a_group_see_each_other_and_no_others(tmp_path: Path) -> None:
    files = HostsFiles(str(tmp_path))
    files.set_pod("1", Host("ns", "job", "job-0", "10.0.0.2"))
    files.set_pod("2", Host("ns", "other", "other-0", "10.0.0.3"))
    files.set_pod("3", Host("ns", "job", "job-1", "10.0.0.4"))
    found = entries(files, "job")
    assert found["job-0"] == found["job-0.job"] == found["job-0.job.ns"] == "10.0.0.2"
    assert found["job-1.job.ns.svc.cluster.local"] == "10.0.0.4"
    assert "other-0" not in found


def test_a_change_is_made_in_the_same_file(tmp_path: Path) -> None:
    files = HostsFiles(str(tmp_path))
    files.set_pod("1", Host("ns", "job", "job-0", "10.0.0.2"))
    files.set_pod("2", Host("ns", "job", "job-1", "10.0.0.3"))
    inode = Path(files.path(("ns", "job"))).stat().st_ino
    files.remove_pod("2")
    assert Path(files.path(("ns", "job"))).stat().st_ino == inode
    assert "job-1" not in entries(files, "job")
    files.remove_pod("1")
    assert not Path(files.path(("ns", "job"))).exists()


def test_services_of_the_namespace_have_short_names_others_long_ones(tmp_path: Path) -> None:
    files = HostsFiles(str(tmp_path))
    files.set_service("ns", "near", "10.96.0.1")
    files.set_pod("1", Host("ns", "", "pod", "10.0.0.2"))
    files.set_service("far-space", "far", "10.96.0.2")
    files.set_pod("2", Host("ns", "", "pod-2", "10.0.0.3"))
    found = entries(files, "pod-2.")
    assert found["near"] == found["near.ns.svc.cluster.local"] == "10.96.0.1"
    assert found["far.far-space"] == "10.96.0.2"
    assert "far" not in found
    files.set_service("ns", "near", "")
    assert "near" not in entries(files, "pod.")


def test_a_pod_without_subdomain_is_known_to_itself_alone(tmp_path: Path) -> None:
    """In Kubernetes it has no name in DNS, so none that works here may fail there."""
    files = HostsFiles(str(tmp_path))
    files.set_pod("1", Host("ns", "", "one", "10.0.0.2"))
    files.set_pod("2", Host("ns", "", "two", "10.0.0.3"))
    files.set_pod("3", Host("ns", "two", "three", "10.0.0.4"))
    assert "one" in entries(files, "one.")
    assert "two" not in entries(files, "one.")
    assert "two" not in entries(files, "two")
