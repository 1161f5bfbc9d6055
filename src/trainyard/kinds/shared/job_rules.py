"""Rules shared by the job kinds: names, replica types, run modes, elastic bounds."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from trainyard.kinds.kind import Kind
from trainyard.kinds.shared.failure_policy.failure_policy_spec import PodFailurePolicy
from trainyard.kinds.shared.pods import pod_template_rules
from trainyard.kinds.shared.run_policy import (
    Elastic,
    ElasticRange,
    ReplicaRestartPolicy,
    RunMode,
    RunPolicy,
)
from trainyard.kinds.shared.workload import RestartPolicy
from trainyard.schema.meta import ObjectMeta
from trainyard.schema.model import Model
from trainyard.schema.object_names import MAX_LABEL, is_dns_label
from trainyard.schema.problems import Path, Problem, error, suggest, warning

MAX_REPLICAS = 10_000
_INTERPRETER = re.compile(r"(.*/)?(python|torchrun|deepspeed|accelerate)[\d.]*\Z")
_HASH = 6  # "-" and five hex digits
_GENERATED = 5  # what a server appends to generateName


def check_name(metadata: ObjectMeta, replicas: Sequence[tuple[str, int]]) -> Iterator[Problem]:
    """The name is a DNS label, and so is the pod name of the last replica of each type (decision
    11).

    ``replicas`` are pairs of replica type and the highest possible number of replicas.
    """
    yield from _check_size(replicas)
    if metadata.name:
        path, name, length = ("metadata", "name"), metadata.name, len(metadata.name)
        valid = is_dns_label(name)
    elif metadata.generate_name:
        path, name = ("metadata", "generateName"), metadata.generate_name
        length = len(name) + _GENERATED
        valid = is_dns_label(f"{name}x"[:MAX_LABEL])
    else:
        yield error(("metadata", "name"), "is required")
        return
    if not valid:
        yield error(
            path,
            f"'{name[:80]}' cannot be a host name; use at most 63 lower-case letters, digits and "
            "'-', a letter first",
        )
        return
    for replica_type, count in replicas:
        suffix = f"-{replica_type}-{max(count - 1, 0)}"
        excess = length + _HASH + len(suffix) - MAX_LABEL
        if excess > 0:
            yield error(
                path,
                f"'{name}' is too long: the pod '{name}-xxxxx{suffix}' would exceed "
                f"{MAX_LABEL} characters; shorten it by {excess}",
            )
            return


def _check_size(replicas: Sequence[tuple[str, int]]) -> Iterator[Problem]:
    """A job has no more replicas than the controller can handle (decision 85)."""
    total = sum(count for _, count in replicas)
    if total > MAX_REPLICAS:
        yield error(("spec",), f"asks for {total} replicas; a job has at most {MAX_REPLICAS}")


def check_types(types: Sequence[str], path: Path) -> Iterator[Problem]:
    """Replica types are unique DNS labels; there is at least one."""
    if not types:
        yield error(path, "needs at least one replica type")
    for index, name in enumerate(types):
        here = (*path, index, "type")
        if not name or not is_dns_label(f"a{name}"):
            yield error(
                here, f"'{name[:63]}' cannot be part of a pod name; use lower-case letters and '-'"
            )
        elif name in types[:index]:
            yield error(here, f"a second replica type named '{name}'")


def check_run_mode(
    mode: RunMode, types: Sequence[str], extra: Sequence[str] = ()
) -> Iterator[Problem]:
    """Run modes name replica types that exist, each once."""
    path: Path = ("spec", "runMode")
    debug = [entry.type for entry in mode.debug.replica_specs]
    resume = [entry.type for entry in mode.pause.resume_specs]
    yield from _known_types(debug, types, extra, (*path, "debug", "replicaSpecs"))
    yield from _known_types(resume, types, extra, (*path, "pause", "resumeSpecs"))


def _known_types(
    named: Sequence[str], types: Sequence[str], extra: Sequence[str], path: Path
) -> Iterator[Problem]:
    for index, name in enumerate(named):
        here = (*path, index, "type")
        if name not in types and name not in extra:
            yield error(here, *unknown_type(name, types))
        elif name in named[:index]:
            yield error(here, f"a second entry for '{name}'")


def unknown_type(name: str, known: Iterable[str]) -> tuple[str, str]:
    """The message about a replica type that a job does not have, and a suggestion."""
    types = tuple(dict.fromkeys(known))
    message = f"there is no replica type '{name[:63]}'; the job has {', '.join(types) or 'none'}"
    return message, suggest(name, types)


def check_elastic(elastic: Elastic, bounds: ElasticRange) -> Iterator[Problem]:
    """1 ≤ minReplicas ≤ expectedReplicas ≤ maxReplicas, when the job is elastic (decision 8)."""
    path: Path = ("spec", "elastic")
    if not elastic.enabled:
        yield from check_unused(elastic, path)
        return
    if bounds.minimum < 1:
        yield error((*path, "minReplicas"), f"must be at least 1, is {bounds.minimum}")
    if elastic.max_replicas is not None and bounds.minimum > elastic.max_replicas:
        yield error(
            (*path, "minReplicas"), f"{bounds.minimum} is more than maxReplicas, {bounds.maximum}"
        )
    elif not bounds.minimum <= bounds.expected <= bounds.maximum:
        where = "expectedReplicas" if elastic.expected_replicas is not None else "maxReplicas"
        message = (
            f"expectedReplicas is {bounds.expected}, out of range: minReplicas is "
            f"{bounds.minimum}, maxReplicas is {bounds.maximum}"
        )
        yield error((*path, where), message)


def check_rank0(replicas: int, path: Path) -> Iterator[Problem]:
    """The type of rank 0 has a replica (decision 4)."""
    if replicas < 1:
        yield error((*path, "replicas"), "must be at least 1: this type holds rank 0")


def check_limit(
    policy: ReplicaRestartPolicy, judged: PodFailurePolicy | None, replica: Path
) -> Iterator[Problem]:
    """A restart policy and a limit of which one makes the other useless."""
    if judged is not None:
        return
    given, path = policy.model_fields_set, (*replica, "restartPolicy")
    if policy.policy == "Never" and policy.limit:
        yield ignored((*path, "limit"), "the policy is Never")
    elif "policy" in given and "limit" not in given and policy.policy != "Never":
        message = f"{policy.policy} restarts nothing while limit is 0, its default; set limit"
        yield warning((*path, "policy"), message)


def check_backoff(policy: RunPolicy, policies: Iterable[RestartPolicy]) -> Iterator[Problem]:
    """A budget of restarts that no restart policy can spend."""
    path: Path = ("spec", "runPolicy", "backoffLimit")
    is_given = "backoff_limit" in policy.model_fields_set and policy.backoff_limit
    if policy.pod_failure_policy is not None or policy.hang.action == "Restart":
        return
    if is_given and all(each is RestartPolicy.NEVER for each in policies):
        yield ignored(path, "every restartPolicy is Never, and restarts nothing")


def check_hang(observe: bool | None, given: Container[str]) -> Iterator[Problem]:
    """A policy on hangs of ranks that are not observed. `given`: fields set in the run policy."""
    if observe is False and "hang" in given:
        yield ignored(("spec", "runPolicy", "hang"), "observe is false, so that no hang is seen")


def check_unused(model: Model, path: Path) -> Iterator[Problem]:
    """Fields that were set although `enabled`, on which they depend, was not."""
    if model.model_fields_set and "enabled" not in model.model_fields_set:
        yield ignored(path, "enabled is not true")


def check_script(words: Sequence[str], path: Path) -> Iterator[Problem]:
    """A script that begins with the interpreter, which the launcher starts itself."""
    if words and _INTERPRETER.match(words[0]):
        rest = words[1:]
        hint = f"; begin with '{rest[0][:80]}'" if rest and not rest[0].startswith("-") else ""
        message = f"'{words[0][:40]}' is taken for the script, which the launcher starts itself"
        yield error((*path, 0), message + hint)


def check_launched(
    template: Mapping[str, Any], kind: Kind, replica_type: str, path: Path, *, by: str
) -> Iterator[Problem]:
    """Command and args of the training container where the job runs something else."""
    found = pod_template_rules.trainer(template, kind, replica_type)
    if found is None:
        return
    which, container = found
    for field in ("command", "args"):
        if container.get(field):
            yield ignored((*path, "spec", "containers", which, field), by)


def ignored(path: Path, why: str) -> Problem:
    """A warning about a field without effect."""
    return warning(path, f"is ignored: {why}")
