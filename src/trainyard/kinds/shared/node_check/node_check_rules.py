"""Rules of `runPolicy.nodeCheck` (decision 295)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainyard.kinds.shared import job_rules
from trainyard.kinds.shared.node_check.node_check_spec import NodeCheck
from trainyard.schema.problems import Path, Problem, error

_PATH: Path = ("spec", "runPolicy", "nodeCheck")


def check_node_check(
    policy: NodeCheck, is_elastic: bool, without_command: Iterable[Path]
) -> Iterator[Problem]:
    """Why nodes cannot be checked. `without_command`: containers that run their image's own
    command, which nothing but the container runtime can start."""
    if not policy.enabled:
        yield from job_rules.check_unused(policy, _PATH)
        return
    if is_elastic:
        why = "replicas of an elastic job come and go"
        yield error((*_PATH, "enabled"), f"cannot be true: {why}")
    for path in without_command:
        text = "is required with nodeCheck: an image's own cannot be started after the check"
        yield error((*path, "command"), text)
