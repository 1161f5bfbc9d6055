"""Names of everything that belongs to a job.

The base name is ``<job>-<hash5>``; hash5 is the first five hex digits of FNV-1a-64 over the job's
name and UID, so a job created anew under an old name gets new children. All names are RFC 1035
labels and at most 63 characters long, because they double as host names (decision 11).
"""

from __future__ import annotations

from trainyard.kube import embedded_contract
from trainyard.schema.object_names import fnv1a64


def hash5(job: str, uid: str) -> str:
    """The first five of sixteen hex digits of the hash of name and UID, e.g. ``12e8d``."""
    return f"{fnv1a64((job + uid).encode()):016x}"[:5]


def base_name(job: str, uid: str) -> str:
    """``<job>-<hash5>``: prefix of the pods, name of the Service and of the TensorBoard."""
    return f"{job}-{hash5(job, uid)}"


def pod_name(base: str, replica_type: str, index: int) -> str:
    """``<base>-<type>-<index>``, also the pod's host name."""
    return f"{base}-{replica_type}-{index}"


def launcher_name(base: str) -> str:
    """The pod of a launcher that is a replica of its own; it carries no index."""
    return f"{base}-launcher"


def ssh_secret_name(base: str) -> str:
    """The Secret with the job's SSH keys."""
    return f"{base}-ssh"


def channel_secret_name(base: str) -> str:
    """The Secret with the job's token for the pods' channel."""
    return f"{base}-channel"


def hostfile_name(base: str) -> str:
    """The ConfigMap with the hostfile."""
    return f"{base}-hostfile"


def replica_service_name(job: str, replica_type: str, index: int) -> str:
    """The Service before one replica, ``<job>-<type>-<index>``, without the hash."""
    return f"{job}-{replica_type}-{index}"


def board_name(tensorboard: str) -> str:
    """``<name>-tb``: pod and Service of a TensorBoard.

    A TensorBoard of a job is named as the job's Service, so its own Service needs another name
    (decision 63).
    """
    return f"{tensorboard}-tb"


CHANNEL_PATH = "/t9k/channel"
"""Where pods mount the Secret with the job's token, by which they report to the controller."""

loopback_address = embedded_contract.loopback_address
