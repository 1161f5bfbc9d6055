"""Rules of PodGroup and Queue."""

from __future__ import annotations

from trainyard.api.names import is_dns_subdomain
from trainyard.api.problems import Problem, error
from trainyard.api.scheduling import PodGroup, Queue


def check(obj: PodGroup | Queue) -> list[Problem]:
    """Every problem that the schema does not show."""
    name = obj.metadata.name or f"{obj.metadata.generate_name}x"
    if is_dns_subdomain(name):
        return []
    message = f"'{name[:80]}' is no name; use lower-case letters, digits, '-' and '.'"
    return [error(("metadata", "name"), message)]
