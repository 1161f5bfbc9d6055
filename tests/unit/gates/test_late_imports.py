"""A cluster that is up has imported all that it may need, as an upgrade may replace its files."""

from __future__ import annotations

import subprocess
import sys

import grimp

CLUSTER = "trainyard.composition.embedded_cluster"
ELSEWHERE = (
    ("trainyard.kube.client", "trainyard.kube.cluster_transport"),
    ("trainyard.kube.client", "trainyard.kube.credentials"),
    ("trainyard.embedded.node.pod_runtime_process", "trainyard.podruntime.server"),
)
"""Imports that a cluster does not come to: it asks its own socket, and the pod runtime is another
process, which has a copy of its own program."""
IMPORT_ALL = """
import asyncio, sys
import trainyard.composition.embedded_cluster, trainyard.composition.controller_process
from trainyard.composition import late_imports
asyncio.run(late_imports.import_all(at_once=True))
print(*sys.modules)
"""


def test_nothing_is_left_to_be_imported_by_a_cluster_that_is_up() -> None:
    graph = grimp.build_graph("trainyard", exclude_type_checking_imports=True, cache_dir=None)
    for importer, imported in ELSEWHERE:
        graph.remove_import(importer=importer, imported=imported)
    needed = graph.find_upstream_modules(CLUSTER)
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=True
    )
    assert not sorted(needed - set(done.stdout.split()))
