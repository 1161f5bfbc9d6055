"""Annotations, reasons and texts on which an embedded cluster and its clients agree.

Clients and kinds of objects write the annotations, the embedded cluster honours them; the cluster
writes the reasons and messages, clients look for them. The texts are stored in objects, so they
must not change. This module stands below both sides and knows no kind.
"""

from __future__ import annotations

WORKING_DIR = "trainyard.dev/working-dir"
"""On a pod: where containers without a workingDir start."""
PYTHON = "trainyard.dev/python"
"""On a pod: the interpreter that its containers find first (decision 120)."""
IMAGES = "trainyard.dev/images"
"""On a pod: a line PATTERN=ENV for each environment that stands for images (decision 156)."""
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
