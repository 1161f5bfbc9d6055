"""Names of the API groups and of the operator, and keys of labels and annotations on what jobs own.

The ``tensorstack.dev`` keys, ``job-role`` and ``replica-index`` are what existing tools select by;
the ``trainyard.dev`` ones are ours. The controller selects by ``JOB_UID`` alone, because names are
shared across kinds and used again by later jobs (decision 12).
"""

from __future__ import annotations

from trainyard.kube import embedded_contract

BATCH = "batch.tensorstack.dev"
SCHEDULER = "scheduler.tensorstack.dev"
TENSORSTACK = "tensorstack.dev"

OPERATOR = "trainyard.dev/operator"
"""Our own name in `managedBy`; unset means the same."""

OWNER_NAME = "tensorstack.dev/owner-name"
"""The job's name."""
COMPONENT = "tensorstack.dev/component"
"""The lower-case kind, e.g. ``genericjob``."""
COMPONENT_TYPE = "tensorstack.dev/component-type"
"""Always ``user``."""
JOB_ROLE = "job-role"
"""``master`` on the pod of rank 0, in kinds that tell it."""
OF_RANK0 = (JOB_ROLE,)
"""Labels that these kinds set on one replica's pod, and templates of none have."""
REPLICA_INDEX = "replica-index"
"""The index within the replica type."""

GROUP_NAME = "scheduler.tensorstack.dev/group-name"
"""The PodGroup of the pod, with t9kScheduler."""
QUEUE = "scheduler.tensorstack.dev/queue"
"""The Queue of the pod, with t9kScheduler."""
ROLE = "scheduler.tensorstack.dev/role"
"""The replica type, with t9kScheduler."""

JOB_UID = "trainyard.dev/job-uid"
"""The UID of the job, or of the TensorBoard, on everything that it owns."""
REPLICA_TYPE = "trainyard.dev/replica-type"
"""The replica type."""
ATTEMPT = "trainyard.dev/attempt"
"""The attempt of the job that the pod belongs to (decision 25)."""
REVISION = "trainyard.dev/revision"
"""What the pod was built from, where a change of it replaces the pod."""
REPLACED = "trainyard.dev/replaced-command"
"""On a pod in debug mode: the lines that it would have run, JSON by container (decision 109)."""
LAUNCH = "trainyard.dev/launch"
"""On a pod of a launch over ssh: what it runs, JSON for the programs in ``payloads/launch``."""
HOSTFILE = "trainyard.dev/hostfile"
"""On the pod that launches over ssh: the hostfile (decision 15)."""
ON_PODS = (ATTEMPT, REVISION, REPLACED, LAUNCH, HOSTFILE)
"""Annotations that the controller gives to pods, and nobody else."""
WORKING_DIR = embedded_contract.WORKING_DIR
"""On a job submitted from a folder: where containers without a workingDir start."""
PYTHON = embedded_contract.PYTHON
"""On a job submitted to an embedded cluster from an environment: its interpreter (decision 120)."""
IMAGES = embedded_contract.IMAGES
"""On such a job: a line PATTERN=ENV for each environment that stands for images (decision 156)."""
SEARCH_PATHS = embedded_contract.SEARCH_PATHS
"""On such a job: where its submitter's shell finds programs and libraries."""
OF_SUBMITTER = (WORKING_DIR, PYTHON, IMAGES, SEARCH_PATHS)
"""Annotations of a job, or of a TensorBoard, that its pods have too."""
FOLDER = embedded_contract.FOLDER
"""On a claim of an embedded cluster: the folder of the machine that stands for it."""
SCRIPT_OF = "trainyard.dev/script-of"
"""On a ConfigMap or Secret that brings a script, function or variables: the name of its job
(decision 157)."""
VALUES_FROM_SHELL = "trainyard.dev/values-from-shell"
"""On such a Secret: variables of the shell that submits it, which are its data (decision 372)."""

# What is recorded of a submission (decision 150).
RECORD = "trainyard.dev/record"
"""The name of the folder with all that was recorded, on the machine of who submitted the job."""
COMMAND = "trainyard.dev/command"
"""The command line, without what looks like a secret."""
SUBMITTED_FROM = "trainyard.dev/submitted-from"
"""The folder in which it was given."""
COMMIT = "trainyard.dev/git-commit"
"""The commit that was checked out in the working folder."""
REMOTE = "trainyard.dev/git-remote"
"""The URL of that repository's origin, without credentials."""
INTERPRETER = "trainyard.dev/interpreter"
"""``3.12.3 /path/of/python``, where the replicas run on the machine of who submitted the job."""
PACKAGES = "trainyard.dev/packages"
"""``142 sha256:…``: how many are installed for it, and what their list amounts to."""
SNAPSHOT_OF = "trainyard.dev/snapshot-of"
"""The folder of which the working folder is a copy."""

IMPLICIT = embedded_contract.IMPLICIT
"""On a Queue that the embedded scheduler made because it was named (decision 86)."""

OWNER = embedded_contract.OWNER
"""On a namespace of a cluster for several people: the name of the user to whom it belongs."""
OWNER_UID = embedded_contract.OWNER_UID
"""The same user's id, which is what counts (decision 88)."""

COMPONENT_TYPE_USER = "user"
MASTER_ROLE = "master"
T9K_SCHEDULER_NAME = "t9k-scheduler"
"""``schedulerName`` of pods with t9kScheduler."""
DEFAULT_QUEUE = "default"
"""The Queue of a PodGroup that names none (decision 36)."""


def selector(uid: str) -> str:
    """The label selector of everything that the job with this UID owns."""
    return f"{JOB_UID}={uid}"
