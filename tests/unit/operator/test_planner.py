"""What the planner keeps between passes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from trainyard.kinds.kind_registry import JOB_KINDS
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kube.resources import SECRETS
from trainyard.lifecycle.actions import Create
from trainyard.lifecycle.observed import Observed
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.operator.reconcile import planner as planner_module
from trainyard.operator.reconcile.job_records import JobRecord
from trainyard.operator.reconcile.planner import Planner
from trainyard.payloads import shipping

KIND = JOB_KINDS["PyTorchTrainingJob"]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def record(number: int) -> JobRecord:
    container = {"name": "pytorch", "image": "i", "command": ["train"]}
    worker = {"type": "worker", "template": {"spec": {"containers": [container]}}}
    metadata: dict[str, Any] = {"name": f"job-{number}", "namespace": "d", "uid": f"u{number}"}
    metadata |= {"resourceVersion": "1", "generation": 1}
    return JobRecord.decode(KIND, {"metadata": metadata, "spec": {"replicaSpecs": [worker]}})


def test_descriptions_of_the_jobs_looked_at_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them were, 30 KB of each job for as long as it lived."""
    monkeypatch.setattr(planner_module, "_KEPT", 3)
    planner = Planner(OperatorSettings())
    for number in (0, 1, 2, 0, 3):
        made = planner.plan(record(number), Observed(), NOW)
        assert made.status is not None
    assert list(planner._made) == ["u2", "u0", "u3"]


def test_programs_for_pods_are_kept_once_for_all_jobs() -> None:
    """Each job had its own: 63 KB of each that observes its ranks."""
    channel = Settings(channel_address="trainyard.trainyard.svc:7443")
    planner = Planner(OperatorSettings(lifecycle=channel))

    def programs(number: int) -> list[str]:
        job = record(number)
        job.raw["spec"]["runPolicy"] = {"observe": True}
        actions = planner.plan(job, Observed(), NOW).actions
        secret = next(e for e in actions if isinstance(e, Create) and e.resource == SECRETS)
        made = secret.manifest()
        return [made["stringData"][shipping.HOOK], made["data"][shipping.OBSERVER_ARCHIVE]]

    assert all(one is other for one, other in zip(programs(1), programs(2), strict=True))
