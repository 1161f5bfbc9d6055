"""Messages between the controller and payloads, and among payloads. Types only.

The controller writes a ``LaunchDescription`` into each pod's annotation ``trainyard.dev/launch``;
it is mounted as ``launch.json``. This file is not shipped: payloads import it for type checking
only, and it has to be valid for Python 3.8 as well. Names of fields are wire names, which pods of
other versions know.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict, Union


class _Command(TypedDict):
    kind: Literal["command"]
    argv: list[str]


class CommandLaunch(_Command, total=False):
    """The user's own command; with ``script``, ``argv`` is what runs such a file."""

    script: str
    slots: int


class MasterPort(TypedDict, total=False):
    """Where pods share the ports of one machine."""

    masterPort: int


class Tuning(TypedDict, total=False):
    """Where deepspeed tunes."""

    autotune: str


class _DeepSpeed(TypedDict):
    kind: Literal["deepspeed"]
    form: str
    """How ``program`` is run: ``python``, ``module`` or ``exec``."""
    program: list[str]


class DeepSpeedLaunch(_DeepSpeed, Tuning, MasterPort, total=False):
    """The ``deepspeed`` line."""

    slots: int
    localRank: bool
    otherArgs: list[str]


class _ColossalAI(TypedDict):
    kind: Literal["colossalai"]
    program: list[str]
    processes: int


class ColossalAILaunch(_ColossalAI, MasterPort, total=False):
    """The ``colossalai run`` line; ``processes`` for each worker."""

    extraArgs: list[str]


LaunchLine = Union[CommandLaunch, DeepSpeedLaunch, ColossalAILaunch]  # noqa: UP007 (Python 3.8)


class Elastic(TypedDict):
    """From how many replicas on the launch starts, once membership has been quiet for so long."""

    min: int
    settleSeconds: float


class ReplicaAddresses(TypedDict, total=False):
    """Where the replicas are that the hostfile names; see ``places.py``."""

    domain: str
    """What follows a replica's name in its full one."""
    addresses: dict[str, str]
    """Instead, where pods have no names of their own."""


class _EveryPod(TypedDict):
    """What every pod is told."""

    pod: str
    port: int
    sshd: str
    graceSeconds: float
    reportSessions: bool
    disableCustomEnv: bool
    places: ReplicaAddresses
    customEnv: list[str]
    """Names of the variables that the user gave the container."""


class LaunchDescription(_EveryPod, total=False):
    """The whole. ``debug`` replaces everything from ``hosts`` on, which only one pod has."""

    literalEnv: list[str]
    joins: bool
    """Whether the replica is a newcomer among others, so that its ranks' failures are its own."""
    debug: list[str]
    hosts: list[str]
    launch: LaunchLine
    workersStay: bool
    elastic: Elastic


class PreflightRequest(TypedDict):
    """What the launch asks every replica for: the folder in which ranks start, the program that
    starts them there, and the script ("": none that is a file)."""

    folder: str
    program: str
    script: str


class PreflightAnswer(TypedDict):
    """What a replica answers: what of that is missing, versions by package, and its GPUs."""

    missing: list[str]
    versions: dict[str, str]
    gpus: int


AgentOrder = Literal["stop", "reset", "end", "fail"]
"""From the launch to a minder, one a line: end the ranks (``stop <seconds>``), forget all reports
of the launch that is over, the launch has ended, this replica has failed (``fail <exit code>``)."""

AgentReply = Literal["hello", "start", "end", "leaving", "forgot", "bye"]
"""From a minder to the launch, one a line: ``hello <unix time>`` first (``… joins`` of a newcomer),
then the reports, which are names of files: ``start-<rank>``, ``end-<rank>-<code>-<unix ns, 0 if
unknown>``, ``leaving`` (the pod is being deleted); and the answers to ``reset`` and ``end``."""


class Observation(TypedDict):
    """What the observer in a rank reports. ``kind`` is of `signs`, or ``Left``; ``seconds``
    says for how long; after ``every`` seconds there is another. ``line`` and ``frames`` (innermost
    first) are files, lines and functions; ``counts``, of each group, the last collective begun and
    the last completed; ``ring``, of one that is stuck, its last collectives. ``arrivals`` are, by
    group, at which collectives it arrived how many milliseconds before ``now``, which is Unix time
    as ``machine`` has it, and how many after the one before. ``cadence``, of rank 0: how many
    collectives come again and again, and the seconds from one time to the next. ``memory`` is how
    many seconds ago it had so many MiB, the newest first. ``library`` is that by which one is
    ``Alone``; ``unobserved`` says why collectives are not observed, or is empty."""

    attempt: int
    rank: int
    size: int
    pid: int
    kind: str
    seconds: float
    every: float
    line: list[Any]
    frames: list[list[Any]]
    waitsFor: str
    counts: list[list[Any]]
    ring: list[dict[str, Any]]
    machine: str
    now: float
    arrivals: list[list[Any]]
    cadence: list[float]
    memory: list[list[float]]
    library: str
    unobserved: str


class AttemptReport(TypedDict):
    """What the in-place supervisor of a pod reports: the pod, its present attempt, and
    once that has ended, with which code, how many seconds ago, and what it wrote last."""

    uid: str
    attempt: int
    ended: bool
    exitCode: int
    seconds: float
    message: str
