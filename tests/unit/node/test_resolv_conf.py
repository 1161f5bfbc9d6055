"""What pods' /etc/resolv.conf says, and that none is left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainyard.embedded.node.network.hosts_files import HostsFiles
from trainyard.embedded.node.network.resolv_conf import compose
from trainyard.embedded.node.runtime_folder import RuntimeFolder

CLUSTER = "search ns.svc.cluster.local svc.cluster.local cluster.local"
OWN = {
    "nameservers": ["1.2.3.4", "10.244.0.1"],
    "searches": ["our.own", "cluster.local"],
    "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
}
MACHINE = """# comment
domain old.example.org
nameserver 127.0.0.53
search example.org  lab.example.org
options edns0 timeout:1
options rotate
"""


@pytest.mark.parametrize(
    ("spec", "lines"),
    [
        ({}, ["nameserver 10.244.0.1", CLUSTER, "options ndots:5"]),
        (
            {"dnsPolicy": "ClusterFirstWithHostNet"},
            ["nameserver 10.244.0.1", CLUSTER, "options ndots:5"],
        ),
        (
            {"dnsConfig": OWN},
            [
                "nameserver 10.244.0.1",
                "nameserver 1.2.3.4",
                f"{CLUSTER} our.own",
                "options ndots:2 edns0",
            ],
        ),
        (
            {"dnsPolicy": "None", "dnsConfig": OWN},
            [
                "nameserver 1.2.3.4",
                "nameserver 10.244.0.1",
                "search our.own cluster.local",
                "options ndots:2 edns0",
            ],
        ),
        ({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["::1"]}}, ["nameserver ::1"]),
        (
            {"dnsPolicy": "Default", "dnsConfig": {"options": [{"name": "timeout", "value": "3"}]}},
            [
                "nameserver 10.244.0.1",
                "search example.org lab.example.org",
                "options edns0 timeout:3 rotate",
            ],
        ),
    ],
)
def test_what_it_says(spec: dict[str, Any], lines: list[str]) -> None:
    assert compose(spec, "ns", "10.244.0.1", MACHINE).splitlines() == lines


def test_where_nobody_answers_it_names_nobody() -> None:
    text = compose({"dnsConfig": OWN}, "ns", "", "")
    assert text.splitlines() == [f"{CLUSTER} our.own", "options ndots:2 edns0"]


def test_pods_with_the_same_text_share_a_file_that_goes_with_the_last(tmp_path: Path) -> None:
    files = HostsFiles(RuntimeFolder(str(tmp_path), str(tmp_path)))
    first = files.resolver_path("1", "search a\n")
    assert files.resolver_path("2", "search a\n") == files.resolver_path("1", "search a\n") == first
    other = files.resolver_path("2", "search b\n")
    assert (Path(first).read_text(), Path(other).read_text()) == ("search a\n", "search b\n")
    files.remove_pod("1")
    assert Path(first).exists()
    files.remove_pod("2")
    assert not list(tmp_path.iterdir())
    assert Path(files.resolver_path("3", "search a\n")).read_text() == "search a\n"
