"""A DeepSpeedJob where cluster and containers are an unprivileged user's."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.embedded import as_user
from tests.embedded.deepspeed_job import KIND, SHOW, TRICKY, shown, spec, worker
from tests.embedded.launching import (
    NAMESPACE,
    Object,
    require_programs,
    running_jobs,
    sshd_processes,
)
from tests.tools import missing
from trainyard.kube.resources import CONFIG_MAPS

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")


async def launch(folder: Path) -> None:
    """Runs as the unprivileged user: two workers, four ranks, what root's ranks would see."""
    assert os.geteuid() != 0
    async with running_jobs(folder, isolation="namespaces") as jobs:
        jobs.script("show.py", SHOW)
        user = f"trainer:x:{os.getuid()}:{os.getgid()}::{folder}:/bin/sh\n"
        body: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "users"}}
        await jobs.client.create(CONFIG_MAPS, body | {"data": {"passwd": user}}, NAMESPACE)
        mount = {"name": "users", "mountPath": "/etc/passwd", "subPath": "passwd"}
        template = worker(env=[{"name": "TRICKY", "value": TRICKY}], volumeMounts=[mount])
        template["spec"]["volumes"] = [{"name": "users", "configMap": {"name": "users"}}]
        job = spec({"python": ["show.py", "with space"]}, slots=2, template=template)
        await jobs.submit(KIND, "dj", job)
        await jobs.succeed(KIND, "dj")
        ranks = await shown(jobs)
        assert [rank["RANK"] for rank in ranks] == ["0", "1", "2", "3"]
        assert len({rank["host"] for rank in ranks}) == 2
        assert {rank["TRICKY"] for rank in ranks} == {TRICKY}
        await jobs.until(KIND, "dj", lambda _: not sshd_processes(jobs))


def test_an_unprivileged_user_trains_on_two_workers() -> None:
    """sshd, pdsh and deepspeed without root, in an image whose user has a login shell."""
    require_programs("deepspeed", "pdsh", "sshd", "ssh")
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="trainyard-test-") as name:
        folder = Path(name)
        os.chown(folder, as_user.USER, as_user.USER)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        become = [sys.executable, "-m", "tests.embedded.as_user"]
        unshare = [*become, "unshare", "--user", "--mount", "true"]
        if subprocess.run(unshare, check=False).returncode:
            missing("users may not make namespaces here, and so cannot have an /etc/passwd")
        result = subprocess.run(
            [*become, sys.executable, "-m", __name__, str(folder)],
            env={**os.environ, "PYTHONPATH": "src", "HOME": name, "PATH": path},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert result.returncode == 0, result.stderr


if __name__ == "__main__":
    asyncio.run(launch(Path(sys.argv[1])))
