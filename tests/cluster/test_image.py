"""The image: as nobody in particular, on files that cannot be written, it runs a job to its end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from tests.cluster.image import build
from tests.cluster.kubelet import running_kubelet
from tests.cluster.yard import Yard, pytorch_job
from tests.tools import require, soak


async def test_the_image_runs_a_job_on_read_only_files(yard: Yard, tmp_path: Path) -> None:
    if not soak(0, 1):
        pytest.skip("not judged: it downloads and builds for minutes; TRAINYARD_SOAK=1")
    if os.geteuid() != 0:
        pytest.skip("not judged: to mount an image takes root")
    require("buildah")
    (folder := tmp_path / "image").mkdir()
    image = build(folder)
    assert not (image.files / "opt/trainyard/bin/pip").exists()
    assert not [*image.files.glob("opt/trainyard/lib/python*/site-packages/trainyard/embedded")]
    (mounted := tmp_path / "mounted").mkdir(mode=0o755)
    config = yard.plane.kubeconfig.read_text()
    authority = yaml.safe_load(config)["clusters"][0]["cluster"]["certificate-authority"]
    (mounted / "ca.crt").write_bytes(Path(authority).read_bytes())
    (mounted / "config").write_text(config.replace(authority, "/mnt/ca.crt"))
    options = ("--namespace", yard.namespace, "--host", "127.0.0.1", "--port", "0")
    command = image.command(mounted, "operator", "--kubeconfig", "/mnt/config", *options)
    async with (
        yard.serving(*command, environment=image.environment) as operator,
        running_kubelet(yard.client, yard.namespace) as kubelet,
    ):
        await yard.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(pytorch_job("digits")))
        await yard.reaches("digits", "Running")
        for pod in await yard.pods():
            await kubelet.end(pod, 0)
        await yard.reaches("digits", "Succeeded")
        (ours,) = (
            Path(f"/proc/{operator.process.pid}/task/{operator.process.pid}/children")
            .read_text()
            .split()
        )
        status = Path(f"/proc/{ours}/status").read_text().splitlines()
        assert "Uid:\t65532\t65532\t65532\t65532" in status
        assert "Traceback" not in operator.log
