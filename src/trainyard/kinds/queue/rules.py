"""Rules of Queue."""

from __future__ import annotations

from trainyard.kinds.queue.spec import Queue
from trainyard.kinds.shared.scheduling import check_name
from trainyard.schema.problems import Problem


def check(obj: Queue) -> list[Problem]:
    """Every problem that the schema does not show."""
    return check_name(obj.metadata)
