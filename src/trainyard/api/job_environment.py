"""The variables that a user gives to replicas, and which of them go by the job's Secret."""

from __future__ import annotations

import os
from collections.abc import Mapping

from trainyard.embedded.node.containers.inherited_environment import inherited_variables


def values_of(env: Mapping[str, str | None]) -> dict[str, str]:
    """All variables with their values; None stands for what this process has.

    Raises KeyError for one that it has not.
    """
    return {name: os.environ[name] if value is None else value for name, value in env.items()}


def open_and_secret(env: Mapping[str, str | None]) -> tuple[dict[str, str], list[str]]:
    """Variables whose values stand in the job's spec, which others may read, and the names of
    those in its Secret: what comes from this process (None), but for the variables by which
    programs and libraries are found, which no pod hides (decision 372)."""
    values = values_of(env)
    ours = {name: value for name, value in values.items() if env[name] is None}
    secret = [name for name in ours if name not in inherited_variables(ours)]
    return {name: value for name, value in values.items() if name not in secret}, secret
