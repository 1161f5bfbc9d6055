"""What PodGroup and Queue share: conditions, and their one rule."""

from __future__ import annotations

from pydantic import Field

from trainyard.kinds.shared.labels import SCHEDULER
from trainyard.kinds.shared.status import Condition
from trainyard.schema.meta import ObjectMeta
from trainyard.schema.names import is_dns_subdomain
from trainyard.schema.problems import Problem, error

API_VERSION = f"{SCHEDULER}/v1beta1"


class SchedulingCondition(Condition):
    """One aspect of the state of a PodGroup or Queue."""

    type: str = Field(default="", description="Which aspect, e.g. GroupScheduled.")


def check_name(metadata: ObjectMeta) -> list[Problem]:
    """The name is a DNS subdomain."""
    name = metadata.name or f"{metadata.generate_name}x"
    if is_dns_subdomain(name):
        return []
    message = f"'{name[:80]}' is no name; use lower-case letters, digits, '-' and '.'"
    return [error(("metadata", "name"), message)]
