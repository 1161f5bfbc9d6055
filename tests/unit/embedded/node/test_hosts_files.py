"""The shared hosts files: who is in them, and that a running pod sees changes."""

from __future__ import annotations

from pathlib import Path

from trainyard.embedded.node.network.hosts_files import HostsFiles, PodHost, ServiceNames
from trainyard.embedded.node.runtime_folder import RuntimeFolder
from trainyard.podruntime.protocol import Name


def at(folder: Path) -> RuntimeFolder:
    return RuntimeFolder(str(folder), str(folder))


def addresses(files: HostsFiles, subdomain: str, aliases: str = "") -> dict[str, list[str]]:
    """Name to addresses, as a resolver reads the file."""
    found: dict[str, list[str]] = {}
    for line in Path(files.path(("ns", subdomain), aliases)).read_text().splitlines():
        address, *names = line.split()
        for name in names:
            found.setdefault(name, []).append(address)
    return found


def entries(files: HostsFiles, subdomain: str) -> dict[str, str]:
    return {name: found[0] for name, found in addresses(files, subdomain).items()}


def one(address: str) -> ServiceNames:
    return ServiceNames((Name(address),))


def test_pods_of_a_group_see_each_other_and_no_others(tmp_path: Path) -> None:
    files = HostsFiles(at(tmp_path))
    files.set_pod("1", PodHost("ns", "job", "job-0", "10.0.0.2"))
    files.set_pod("2", PodHost("ns", "other", "other-0", "10.0.0.3"))
    files.set_pod("3", PodHost("ns", "job", "job-1", "10.0.0.4"))
    found = entries(files, "job")
    assert found["job-0"] == found["job-0.job"] == found["job-0.job.ns"] == "10.0.0.2"
    assert found["job-1.job.ns.svc.cluster.local"] == "10.0.0.4"
    assert "other-0" not in found


def test_a_change_is_made_in_the_same_file(tmp_path: Path) -> None:
    files = HostsFiles(at(tmp_path))
    files.set_pod("1", PodHost("ns", "job", "job-0", "10.0.0.2"))
    files.set_pod("2", PodHost("ns", "job", "job-1", "10.0.0.3"))
    inode = Path(files.path(("ns", "job"))).stat().st_ino
    files.remove_pod("2")
    assert Path(files.path(("ns", "job"))).stat().st_ino == inode
    assert "job-1" not in entries(files, "job")
    files.remove_pod("1")
    assert not Path(files.path(("ns", "job"))).exists()


def test_services_of_the_namespace_have_short_names_others_long_ones(tmp_path: Path) -> None:
    files = HostsFiles(at(tmp_path))
    files.set_services({("ns", "near"): one("10.96.0.1")})
    files.set_pod("1", PodHost("ns", "", "pod", "10.0.0.2"))
    files.set_services({("far-space", "far"): one("10.96.0.2")})
    files.set_pod("2", PodHost("ns", "", "pod-2", "10.0.0.3"))
    found = entries(files, "pod-2.")
    assert found["near"] == found["near.ns.svc.cluster.local"] == "10.96.0.1"
    assert found["far.far-space"] == "10.96.0.2"
    assert "far" not in found
    files.set_services({("ns", "near"): ServiceNames(())})
    assert "near" not in entries(files, "pod.")


def test_a_pod_without_subdomain_is_known_to_itself_alone(tmp_path: Path) -> None:
    """In Kubernetes it has no name in DNS, so none that works here may fail there."""
    files = HostsFiles(at(tmp_path))
    files.set_pod("1", PodHost("ns", "", "one", "10.0.0.2"))
    files.set_pod("2", PodHost("ns", "", "two", "10.0.0.3"))
    files.set_pod("3", PodHost("ns", "two", "three", "10.0.0.4"))
    assert "one" in entries(files, "one.")
    assert "two" not in entries(files, "one.")
    assert "two" not in entries(files, "two")


def test_a_headless_name_has_an_address_for_each_pod(tmp_path: Path) -> None:
    files = HostsFiles(at(tmp_path))
    files.set_pod("1", PodHost("ns", "db", "db-0", "10.0.0.2"))
    files.set_pod("2", PodHost("ns", "", "reader", "10.0.0.9"))
    both = ServiceNames((Name("10.0.0.2", "db-0"), Name("10.0.0.3", "db-1")))
    files.set_services({("ns", "db"): both})
    for group in ("db", "reader."):
        found = addresses(files, group)
        names = ("db", "db.ns", "db.ns.svc.cluster.local")
        assert [found[name] for name in names] == [["10.0.0.2", "10.0.0.3"]] * 3
        assert found["db-0.db"] == ["10.0.0.2"]
    assert addresses(files, "reader.")["db-1.db.ns.svc.cluster.local"] == ["10.0.0.3"]
    files.set_services({("ns", "db"): ServiceNames((Name("10.0.0.3", "db-1"),))})
    assert addresses(files, "reader.")["db"] == ["10.0.0.3"]
    assert "db-0.db" not in addresses(files, "reader.")


def test_the_service_of_a_job_is_known_to_its_pods_alone(tmp_path: Path) -> None:
    files = HostsFiles(at(tmp_path))
    files.set_pod("1", PodHost("ns", "job", "job-0", "10.0.0.2"))
    files.set_pod("2", PodHost("ns", "other", "other-0", "10.0.0.9"))
    files.set_services({("ns", "job"): ServiceNames((Name("10.0.0.2", "job-0"),), is_private=True)})
    assert addresses(files, "job")["job"] == addresses(files, "job")["job-0.job"] == ["10.0.0.2"]
    assert "job" not in addresses(files, "other")


def test_lines_of_its_own_are_those_of_the_pods_that_ask_for_them(tmp_path: Path) -> None:
    files = HostsFiles(at(tmp_path))
    own = "1.2.3.4\tdata data.example\n"
    files.set_pod("1", PodHost("ns", "job", "job-0", "10.0.0.2"))
    files.set_pod("2", PodHost("ns", "job", "job-1", "10.0.0.3", own))
    assert addresses(files, "job", own)["data.example"] == ["1.2.3.4"]
    assert addresses(files, "job", own)["job-0"] == ["10.0.0.2"]
    assert "data" not in addresses(files, "job")
    files.set_pod("3", PodHost("ns", "job", "job-2", "10.0.0.4"))
    assert addresses(files, "job", own)["job-2"] == ["10.0.0.4"]
    files.remove_pod("2")
    assert not Path(files.path(("ns", "job"), own)).exists()
    assert "job-1" not in addresses(files, "job")


def test_files_are_written_here_and_mounted_from_there(tmp_path: Path) -> None:
    files = HostsFiles(RuntimeFolder(str(tmp_path / "here"), "/there"))
    files.set_pod("1", PodHost("ns", "job", "job-0", "10.0.0.2"))
    assert files.path(("ns", "job")) == "/there/ns_job"
    assert "job-0" in (tmp_path / "here" / "ns_job").read_text()
    files.remove_pod("1")
    assert list((tmp_path / "here").iterdir()) == []
