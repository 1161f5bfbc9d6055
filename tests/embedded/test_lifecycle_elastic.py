"""An elastic PyTorchTrainingJob changes its size while real torchrun agents train.

The manifest does not give maxRestarts. The script tells the world size that it sees.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import yaml

from tests.embedded import lifecycle_training as training
from tests.embedded.command_line import Object, until
from tests.embedded.launching import require_programs
from tests.embedded.lifecycle_yard import (
    START_SECONDS,
    Yard,
    kubectl,
    pytorch,
    template,
    yard,
)
from tests.tools import kubectl_path, oldest_and_newest_kubectl

NAME = "elastic"
FOREVER = 100_000
"""Steps."""


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with yard(tmp_path_factory.mktemp("elastic")) as made:
        yield made


def _manifest(expected: int, command: list[str]) -> Object:
    return pytorch(
        NAME,
        template(command),
        replicas=2,
        torchrunConfig={"enabled": True},
        elastic={
            "enabled": True,
            "minReplicas": 1,
            "maxReplicas": 4,
            "expectedReplicas": expected,
        },
    )


class Resizing:
    """The job, and three ways to change its size."""

    def __init__(self, cluster: Yard) -> None:
        self.cluster = cluster
        self._command = training.arguments(cluster, NAME, FOREVER)
        self._tool = kubectl_path(oldest_and_newest_kubectl()[-1])

    def submit(self, size: int) -> None:
        """Create the job."""
        self.cluster.submit(_manifest(size, self._command))

    def scale(self, size: int) -> None:
        """With the command line."""
        self.cluster.run("scale", NAME, "--replicas", str(size))

    def kubectl_scale(self, size: int) -> None:
        """By the scale subresource."""
        kubectl(self._tool, self.cluster, "scale", f"pj/{NAME}", f"--replicas={size}")

    def apply(self, size: int) -> None:
        """With a changed manifest."""
        text = yaml.safe_dump(_manifest(size, self._command))
        kubectl(self._tool, self.cluster, "apply", "-f", "-", text=text)

    def await_world(self, size: int, seconds: float) -> float:
        """Wait until the ranks of that world were the last to start; the seconds it took."""
        wanted = [(rank, size) for rank in range(size)]
        try:
            return until(
                lambda: sorted(training.starts(self.cluster, NAME)[-size:]) == wanted,
                f"the script sees {size}",
                seconds,
            )
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.cluster.story(NAME)}") from None

    def await_training(self) -> None:
        """Wait until the present world makes a step."""
        step = training.step(self.cluster, NAME)
        until(lambda: training.step(self.cluster, NAME) > step, "it trains", START_SECONDS)


def test_a_job_grows_from_2_to_4_and_shrinks_to_1_while_it_trains(cluster: Yard) -> None:
    """By each of three ways, and at no cost; each world goes on with the training."""
    require_programs("torchrun")
    job = Resizing(cluster)
    job.submit(2)
    job.await_world(2, START_SECONDS)
    job.await_training()
    for change, size in ((job.scale, 4), (job.kubectl_scale, 1), (job.apply, 3)):
        asked = time.monotonic()
        change(size)
        job.await_world(size, START_SECONDS)
        seconds = time.monotonic() - asked
        print(f"{change.__name__}: the script sees {size} after {seconds:.1f} s")
        job.await_training()
    status = cluster.status(NAME)
    assert status["phase"] == "Running"
    assert status["backoffCount"] == 0
    assert [attempt.get("reason") for attempt in status["attempts"]] == ["Resized"] * 3 + [None]
    assert set(cluster.pods(NAME)) == {"worker-0", "worker-1", "worker-2"}
    cluster.run("delete", NAME, "--wait")
