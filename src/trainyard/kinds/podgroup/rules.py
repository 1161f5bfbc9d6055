"""Rules of PodGroup."""

from __future__ import annotations

from trainyard.kinds.podgroup.spec import PodGroup
from trainyard.kinds.shared.scheduling import check_name
from trainyard.schema.problems import Problem


def check(obj: PodGroup) -> list[Problem]:
    """Every problem that the schema does not show."""
    return check_name(obj.metadata)
