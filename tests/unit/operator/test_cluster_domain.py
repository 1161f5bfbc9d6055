"""The cluster's domain is taken from the operator's own pod."""

from __future__ import annotations

import pytest

from trainyard.operator.config.operator_settings import cluster_domain_of


@pytest.mark.parametrize(
    ("configuration", "domain"),
    [
        (
            "search ns.svc.corp.example svc.corp.example corp.example\nnameserver 10.0.0.10",
            "corp.example",
        ),
        ("nameserver 1.1.1.1\nsearch home.lan", "cluster.local"),
        ("search svc.", "cluster.local"),
        ("", "cluster.local"),
    ],
    ids=["in a pod", "on a laptop", "broken", "nothing"],
)
def test_the_domain_is_that_of_the_search_list(configuration: str, domain: str) -> None:
    assert cluster_domain_of(configuration) == domain
