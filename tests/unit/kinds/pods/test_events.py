"""Where the observer looks for what a training writes for TensorBoard (decision 312)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kinds.pods.jobs import container, env, job, pod, replicas, workload

from trainyard.kinds.shared.job_settings import Settings

CLUSTER = Settings(channel_address="reports.test:7443")
LOGS = {"logDir": {"pvc": [{"name": "mine", "subPath": ["log", "./more//log"]}]}}


def events_variable(
    board: dict[str, Any] | None, *mounts: dict[str, str], **policy: Any
) -> str | None:
    """The variable of a pod with the claims `mine` and `other`, so mounted."""
    main = {"name": "pytorch", "image": "i", "command": ["python", "train.py"]}
    own = replicas(containers=[{**main, "volumeMounts": list(mounts)}])
    own["template"]["spec"]["volumes"] = [
        {"name": f"v-{name}", "persistentVolumeClaim": {"claimName": name}}
        for name in ("mine", "other")
    ]
    spec = {} if board is None else {"tensorboardSpec": {"image": "t", **board}}
    policy = policy or {"observe": True}
    wanted = job("PyTorchTrainingJob", replicaSpecs=[own], runPolicy=policy, **spec)
    made = pod(workload(wanted, CLUSTER))
    assert container(made)["name"] == "pytorch"
    found: str | None = env(made).get("TRAINYARD_EVENTS")
    return found


@pytest.mark.parametrize(
    ("board", "mount", "folders"),
    [
        (LOGS, {}, "/data/log:/data/more/log"),
        (LOGS, {"mountPath": "/data/"}, "/data/log:/data/more/log"),
        (LOGS, {"subPath": "more"}, "/data/log"),
        (LOGS, {"subPath": "./log/"}, "/data"),
        (LOGS, {"subPath": "lo"}, None),
        (LOGS, {"subPath": "log/deeper"}, None),
        (LOGS, {"subPathExpr": "$(NAME)"}, None),
        (LOGS, {"name": "v-other"}, None),
        ({"logDir": {"pvc": [{"name": "mine"}]}}, {}, "/data"),
        ({"trainingLogFilesets": ["t9k://pvc/mine/log/"]}, {}, "/data/log"),
        ({"logDir": {"s3": {"secretRef": {"name": "s"}, "uri": ["s3://b/c/"]}}}, {}, None),
        (None, {}, None),
    ],
)
def test_the_folders_of_the_board_are_told_as_they_are_mounted(
    board: dict[str, Any] | None, mount: dict[str, str], folders: str | None
) -> None:
    assert events_variable(board, {"name": "v-mine", "mountPath": "/data", **mount}) == folders


def test_nothing_is_told_where_nobody_looks() -> None:
    assert events_variable(LOGS, {"name": "v-mine", "mountPath": "/data"}, observe=False) is None
