"""Rules of GenericJob: finish rules, Services and the variables in its templates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.kinds.generic import OWN_LABELS, finish_rules
from trainyard.kinds.generic.finish_rules import indexes_of
from trainyard.kinds.generic.spec import DIGITS, VARIABLE, GenericJob, GenericJobSpec
from trainyard.kinds.shared import job_rules, process_rules
from trainyard.kinds.shared.failure_policy.failure_policy_rules import check_failure_policy
from trainyard.kinds.shared.pods import pod_template_rules
from trainyard.kinds.shared.pods.template_overrides import check_overridden
from trainyard.schema.object_names import is_plain_label
from trainyard.schema.problems import Path, Problem, error, warning

_REPLICAS: Path = ("spec", "replicaSpecs")
_NO_RANKS = "a GenericJob sets no variables of ranks; set it in env, by $(rank) and $(service.…)"
_CONTAINERS = ("containers", "initContainers")


def check(job: GenericJob) -> list[Problem]:
    """Every problem that the schema does not show."""
    spec = job.spec
    types = [replica.type for replica in spec.replica_specs]
    counts = {replica.type: replica.replicas for replica in spec.replica_specs}
    problems = [
        *job_rules.check_name(job.metadata, list(counts.items())),
        *job_rules.check_types(types, _REPLICAS),
        *job_rules.check_run_mode(spec.run_mode, types),
        *_ports(spec),
        *job_rules.check_hang(spec.run_policy.observe, spec.run_policy.model_fields_set),
        *check_failure_policy(
            spec.run_policy.pod_failure_policy, {r.type: r.template for r in spec.replica_specs}
        ),
    ]
    # A type may have no replicas, but not all of them (decision 4).
    if types and not sum(counts.values()):
        problems.append(error(_REPLICAS, "the job has no replica; at least one type needs one"))
    problems += finish_rules.check(spec.success_rules, spec.failure_rules, counts)
    for index, replica in enumerate(spec.replica_specs):
        problems += job_rules.check_limit(
            replica.restart_policy, spec.run_policy.pod_failure_policy, (*_REPLICAS, index)
        )
        path = (*_REPLICAS, index, "template")
        problems += pod_template_rules.check_template(replica.template, path)
        problems += check_overridden(
            replica.template,
            path,
            policy=replica.restart_policy.policy,
            of_kind=OWN_LABELS,
            given=job.metadata.annotations,
            has_pod_dns=bool(spec.service and spec.service.ports),
        )
        problems += _variables(replica.template, spec, counts, path)
        problems += process_rules.check_references(replica.template, path, (), _NO_RANKS)
    return problems


def _ports(spec: GenericJobSpec) -> Iterator[Problem]:
    ports = spec.service.ports if spec.service else ()
    seen: set[Any] = set()
    for index, port in enumerate(ports):
        path: Path = ("spec", "service", "ports", index)
        if port.name is None and len(ports) > 1:
            yield error((*path, "name"), "is required when there are several ports")
        if port.name is not None and not is_plain_label(port.name):
            message = f"'{port.name[:63]}' is no port name; use lower-case letters, digits and '-'"
            yield error((*path, "name"), message)
        if port.node_port is not None:
            yield job_rules.ignored((*path, "nodePort"), "the Service is of type ClusterIP")
        for key, value in (("name", port.name), ("port", (port.port, port.protocol))):
            if value is not None and value in seen:
                yield error((*path, key), "is used by an earlier port of the Service")
            seen.add(value)


def _variables(
    template: Mapping[str, Any], spec: GenericJobSpec, counts: Mapping[str, int], path: Path
) -> Iterator[Problem]:
    pod = template.get("spec") or {}
    yield from _unreplaced({k: v for k, v in pod.items() if k not in _CONTAINERS}, (*path, "spec"))
    for key in _CONTAINERS:
        for index, container in enumerate(pod.get(key) or ()):
            rest = {k: v for k, v in container.items() if k not in ("command", "args", "env")}
            yield from _unreplaced(rest, (*path, "spec", key, index))
            for where, text in _texts(container):
                for match in VARIABLE.finditer(text):
                    if message := _unresolvable(match, spec, counts):
                        yield error((*path, "spec", key, index, *where), message)


def _unreplaced(part: Any, path: Path) -> Iterator[Problem]:
    """Warnings about variables in fields in which they are not replaced."""
    if isinstance(part, str):
        found = next((m for m in VARIABLE.finditer(part) if m.group() != "$$"), None)
        if found:
            message = (
                f"{found.group()} stays as it is here; it is replaced in command, args and env"
            )
            yield warning(path, message)
    elif isinstance(part, Mapping):
        for key, value in part.items():
            yield from _unreplaced(value, (*path, key))
    elif isinstance(part, list):
        for index, value in enumerate(part):
            yield from _unreplaced(value, (*path, index))


def _texts(container: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """The places of a container in which variables are replaced."""
    for key in ("command", "args"):
        for index, text in enumerate(container.get(key) or ()):
            yield (key, index), text
    for index, variable in enumerate(container.get("env") or ()):
        if isinstance(value := variable.get("value"), str):
            yield ("env", index, "value"), value


def _unresolvable(
    match: re.Match[str], spec: GenericJobSpec, counts: Mapping[str, int]
) -> str | None:
    """Why a variable has no value, or None when it has one (decision 20)."""
    text = match.group()
    if match["own"] or text == "$$":
        return None
    name = match["count"] if match["count"] is not None else match["host"]
    if name is not None and name not in counts:
        message, hint = job_rules.unknown_type(name, counts)
        return f"{text}: {message}" + (f"; did you mean '{hint}'?" if hint else "")
    if match["count"] is not None:
        return None
    ports = [port.name for port in spec.service.ports] if spec.service else []
    if not ports:
        return f"{text}: the job has no Service; set spec.service.ports"
    if match["port"] is not None:
        known = ", ".join(str(port) for port in ports)
        return None if match["port"] in ports else f"{text}: the Service has the ports {known}"
    if not DIGITS.match(match["index"]) or int(match["index"]) >= counts[name]:
        return f"{text}: {indexes_of(name, counts)}"
    return None
