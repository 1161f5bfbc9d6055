"""What pods' /etc/resolv.conf says."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.embedded.node.network.resolv_conf import compose

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
