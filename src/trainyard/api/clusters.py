"""Which cluster a client uses: the embedded one that is up, one that it starts, or another."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, TypedDict

from trainyard.api.options import image_pairs, several
from trainyard.client.cluster_target import ClusterTarget, CommandError, Where
from trainyard.composition.cluster_shape import ClusterShape, Network
from trainyard.kube.client import Client
from trainyard.machine.state_folder import find_cluster

Choice = Literal["any", "running", "background", "private"]
"""Of embedded clusters: `running`, the one that is up; `background`, the same, started if none is;
`private`, one that ends with the client; `any`, the one that is up, else a private one."""
_END_SECONDS = 60.0
_UP = ("-m", "trainyard.cli.main", "up")


class ClusterOptions(TypedDict, total=False):
    """What an embedded cluster is to be like that a client starts, as options of `trainyard up`."""

    volumes: dict[str, str]
    """The folder that stands for a claim, by the claim."""
    images: tuple[str, str] | Iterable[tuple[str, str]]
    """A pattern of images, and the Python environment that stands for them; the first wins."""
    passed: str | Iterable[str]
    """Names, and patterns of names, of variables that containers get beside the usual ones."""
    resources: dict[str, str]
    """Resources to pretend, as `{"nvidia.com/gpu": "8"}`."""
    is_strict: bool
    """Requests, queues, node names and selectors are taken to the letter."""
    isolation: Literal["auto", "namespaces", "plain"]
    """Separate pods by namespaces, or run them as plain processes."""
    network: Network
    """What pods reach: what this machine reaches, but nothing of it itself; or only each other."""
    allowed_ports: int | Iterable[int]
    """Ports of this machine's 127.0.0.1 that pods reach as `host.trainyard.internal`."""


def shape_of(options: ClusterOptions) -> ClusterShape:
    """The same, as commands have it; raises CommandError for images that are no pairs."""
    return ClusterShape(
        volumes=dict(options.get("volumes", {})),
        images=image_pairs(options.get("images", ())),
        passed=tuple(several(options.get("passed", ()))),
        resources=dict(options.get("resources", {})),
        is_strict=options.get("is_strict", False),
        isolation=options.get("isolation", "auto"),
        network=options.get("network", "open"),
        allowed_ports=tuple(several(options.get("allowed_ports", ()))),
    )


def _words(shape: ClusterShape) -> Iterator[str]:
    """As the command line has them."""
    for flag, pairs in (
        ("--volume", shape.volumes.items()),
        ("--image", shape.images),
        ("--resource", shape.resources.items()),
    ):
        yield from (f"{flag}={name}={value}" for name, value in pairs)
    yield from (f"--pass-env={name}" for name in shape.passed)
    yield from ["--strict-scheduling"] if shape.is_strict else []
    yield f"--isolation={shape.isolation}"
    yield f"--network={shape.network}"
    yield from (f"--allow-port={port}" for port in shape.allowed_ports)


class Private:
    """A cluster of one's own, in a process of its own."""

    def __init__(self, shape: ClusterShape) -> None:
        """Start it; blocks until it answers. Raises CommandError with the reason if it cannot."""
        command = [_python(), "-m", "trainyard.cli.private_cluster_process", str(os.getpid())]
        command += _words(shape)
        self._owner = os.getpid()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C here is not meant for it
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": self._last_words()}
        if "error" in answer:
            self.close()
            raise CommandError(f"cannot start a cluster: {answer['error']}")
        self.socket, self.folder = str(answer["socket"]), Path(answer["folder"])
        self.isolation = str(answer["isolation"])

    def _last_words(self) -> str:
        text = self._process.communicate()[1].decode(errors="replace").strip()
        return text.rpartition("\n")[2] or f"it ended with {self._process.returncode}"

    def close(self) -> None:
        """End it, and with it all that it runs."""
        if os.getpid() == self._owner:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.communicate(timeout=_END_SECONDS)
            self._process.kill()
            self._process.wait()


def _python() -> str:
    if not sys.executable:
        raise CommandError(
            "this program has no interpreter of its own to start a cluster with: start one with "
            "`trainyard up` in a shell"
        )
    return sys.executable


async def connect(
    where: Where, choice: Choice, shape: ClusterShape
) -> tuple[ClusterTarget, Private | None]:
    """The API server that is meant, and the cluster that was started for it alone."""
    if not would_start(where, choice):
        return await where.connect(), None
    if choice == "background":
        await asyncio.to_thread(_start_background, shape)
        return await where.connect(), None
    own = await asyncio.to_thread(Private, shape)
    return target_at(own.socket, own.folder, where.namespace), own


def target_at(
    socket: str, folder: Path, namespace: str | None, *, is_guest: bool = False
) -> ClusterTarget:
    """The embedded cluster that answers at a socket; `folder` holds its state."""
    client = Client.unix(socket)
    named = namespace or client.namespace
    return ClusterTarget(client, named, "the embedded cluster", socket, folder, is_guest)


def would_start(where: Where, choice: Choice) -> bool:
    """Whether to connect is to start a cluster."""
    if where.kubeconfig is not None or where.context is not None or choice == "running":
        return False
    return choice == "private" or find_cluster() is None


def _start_background(shape: ClusterShape) -> None:
    command = [_python(), *_UP, *_words(shape)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CommandError(done.stderr.strip().removeprefix("error: ") or "cannot start a cluster")
