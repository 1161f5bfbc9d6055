"""The one exception tree, so that a caller can tell a user's mistake from a defect.

::

    TrainyardError          the text is meant for the user as it stands
    ├── InvalidManifest     a manifest or a stored object breaks a rule
    ├── InvalidQuantity     not a Kubernetes quantity
    └── InvalidDuration     not a duration of a Queue

Every other room roots its own errors here (``trainyard.kube.errors`` and so on).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainyard.schema.problems import Problem


class TrainyardError(Exception):
    """An error whose text names the object, the reason and the fix; shown without a traceback."""

    object: str = ""
    """What it is about, `Kind namespace/name`, where it is about one object."""
    path: str = ""
    """The field that is wrong, as `spec.replicaSpecs[0].type`, where it is one."""
    fix: str = ""
    """What to do, where it is known apart from the text."""


class InvalidManifest(TrainyardError):
    """A manifest that cannot be used; ``problems`` holds every reason."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))
        if self.problems:
            first = self.problems[0]
            self.object, self.path, self.fix = first.object, first.where, first.suggestion


class InvalidQuantity(TrainyardError, ValueError):
    """A text that is not a Kubernetes quantity such as ``500m``, ``16Gi`` or ``1e3``."""


class InvalidDuration(TrainyardError, ValueError):
    """A text that is not a duration such as ``1d12h`` or ``30m``."""
