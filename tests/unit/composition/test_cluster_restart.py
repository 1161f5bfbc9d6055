"""A cluster that is restarted has all options that it was started with."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

from trainyard.composition.cluster_restart import _shape
from trainyard.composition.cluster_shape import ClusterShape
from trainyard.composition.embedded_cluster import cluster_settings
from trainyard.machine.state_folder import Paths, RunningCluster


def test_no_option_is_lost_by_a_restart(tmp_path: Path) -> None:
    asked = ClusterShape(
        volumes={"data": "/srv"},
        images=(("torch*", "/opt/torch"),),
        passed=("HF_*",),
        resources={"nvidia.com/gpu": "2"},
        is_strict=True,
        isolation="plain",
        pids_limit=99,
        log_max_size=1 << 20,
        log_max_files=3,
        network="none",
        allowed_ports=(8080,),
    )
    for field in fields(ClusterShape):
        value = getattr(asked, field.name)
        assert value != getattr(ClusterShape(), field.name), f"this test leaves {field.name} out"
    recorded = json.loads(json.dumps(cluster_settings(asked, Paths(tmp_path)).as_json()))
    found = RunningCluster(1, "api.sock", 0, 0.0, asked.isolation, settings=recorded)
    assert _shape(found) == asked
