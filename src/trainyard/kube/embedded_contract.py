"""Annotations, reasons and texts on which an embedded cluster and its clients agree.

Clients and kinds of objects write the annotations, the embedded cluster honours them; the cluster
writes the reasons and messages, clients look for them. The texts are stored in objects, so they
must not change. This module stands below both sides and knows no kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from trainyard.schema.object_names import fnv1a64

WORKING_DIR = "trainyard.dev/working-dir"
"""On a pod: where containers without a workingDir start."""
PYTHON = "trainyard.dev/python"
"""On a pod: the interpreter that its containers find first (decision 120)."""
IMAGES = "trainyard.dev/images"
"""On a pod: a line PATTERN=ENV for each environment that stands for images (decision 156)."""
SEARCH_PATHS = "trainyard.dev/search-paths"
"""On a pod: a line NAME=VALUE for each of SEARCHED that its submitter has set; its containers find
programs and libraries by these, and not by those of whoever started the cluster."""
SEARCHED = (
    *("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME", "PYTHONPATH", "PYTHONUSERBASE"),
    *("PYTHONNOUSERSITE", "LD_LIBRARY_PATH", "LD_PRELOAD", "LIBRARY_PATH", "CPATH", "CUDA_HOME"),
    "CUDA_PATH",
)
"""Variables by which programs and libraries are found."""
FOLDER = "trainyard.dev/folder"
"""On a PersistentVolumeClaim: the folder of the machine that stands for it."""
OWNER = "trainyard.dev/owner"
"""On a namespace of a cluster with several users: the name of the user to whom it belongs."""
OWNER_UID = "trainyard.dev/owner-uid"
"""The same user's id, which is what counts (decision 88)."""
IMPLICIT = "trainyard.dev/implicit"
"""On a queue that the scheduler made because somebody named it (decision 86)."""
NEVER_HERE = "this machine has"
"""In the condition of a pod that asks for more than the one node of an embedded cluster has."""
QUEUE_MAX_DURATION = "QueueMaxDuration"
"""The reason in DisruptionTarget of a pod that ran for longer than its queue allows."""
GRACE_IS_OVER = "did not end within its grace period"
"""In the event of a container that got SIGKILL for that."""
HIDDEN_OUTPUT = "(for those who may read the logs here)"
"""What a program wrote, for those who may not read its log (decision 371)."""
CLAIMS_FOLDER = "volumes"
"""In the state folder: NAMESPACE/CLAIM for each claim that no folder stands for."""
OBSERVE = "TRAINYARD_OBSERVE"
"""A variable of a container: the node gives it the observer's programs, which Python then loads."""
OBSERVER_PATH = "/t9k/observer"
"""Where the container finds these programs."""
STOPPED = "trainyard.dev/Stopped"
"""The condition of an observed pod in which a signal has stopped processes (decision 291)."""


def prepend_observer(python_path: str) -> str:
    """A PYTHONPATH that begins with OBSERVER_PATH; one that has it already stays as it is."""
    if OBSERVER_PATH in python_path.split(":"):
        return python_path
    return f"{OBSERVER_PATH}:{python_path}" if python_path else OBSERVER_PATH


def search_paths(environment: Mapping[str, str]) -> str:
    """The text of SEARCH_PATHS; a value of several lines, which no path is, is left out."""
    given = ((name, environment.get(name, "")) for name in SEARCHED)
    return "\n".join(f"{name}={value}" for name, value in given if value and "\n" not in value)


def with_search_paths(environment: Mapping[str, str], text: str) -> dict[str, str]:
    """The environment with those of SEARCHED that the text has, and no other of them."""
    others = {name: value for name, value in environment.items() if name not in SEARCHED}
    lines = (line.partition("=") for line in text.splitlines())
    return others | {name: value for name, _, value in lines if name in SEARCHED}


def stopped_message(pids: Iterable[int]) -> str:
    """The message of the condition STOPPED; the process ids are those that the pod sees."""
    return f"stopped by a signal: {', '.join(map(str, sorted(pids)))}"


def parse_stopped(message: str) -> frozenset[int]:
    """The process ids in such a message."""
    return frozenset(int(number) for number in re.findall(r"\b\d{1,9}\b", message))


def loopback_address(pod: str) -> str:
    """The address of a pod without a network of its own: 127.x.y.z, each of x, y, z in 1..254.

    It follows from the pod's name, so that whoever made the pod knows it before (decision 41).
    """
    digest = fnv1a64(pod.encode())
    x, y, z = (1 + (digest >> shift) % 254 for shift in (0, 20, 40))
    return f"127.{x}.{y}.{z}"


def empty_claim_message(claim: str, folder: str) -> str:
    """Of a claim that no folder stands for, and that nothing has been put into."""
    return (
        f"claim {claim!r} is not mapped to a folder and is empty; it is kept in {folder}. To use "
        f"your data: --volume {claim}=DIR"
    )
