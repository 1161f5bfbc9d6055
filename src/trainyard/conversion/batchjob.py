"""Kubernetes' own Job (batch/v1), alone or as a part of a JobSet: its pods as a type of replica.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/job-v1/
"""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from typing import Any

from trainyard.conversion import foreign_common, indexed_job_peers
from trainyard.conversion.field_tracking import CannotConvert, Fields, Note
from trainyard.conversion.foreign_common import Object, TorchrunCommand
from trainyard.schema.dataclass import dataclass

_TYPE = "worker"
_MODES = ("Indexed", "NonIndexed")
_BACKOFF_LIMIT = 6
_SET_BY_LAUNCH = ("MASTER_ADDR", "MASTER_PORT", "RANK", "NODE_RANK", "WORLD_SIZE")
_DROPPED = {
    "manualSelector": "pods have the labels of their job",
    "selector": "pods have the labels of their job",
    "podReplacementPolicy": "a replica starts again when its pod is gone",
    "maxFailedIndexes": "a job fails with its first replica that fails for good",
}
_TORCHRUN_IN_SHELL = re.compile(r"\b(?:torchrun|torch\.distributed\.(?:run|launch))\b")
_SHELL_NOTE = (
    "it starts torchrun in a script of its own, of which the job knows nothing: with torchrun and "
    "its words as the command itself the job would start it"
)
_RANGE = re.compile(r"(\d+)(?:-(\d+))?\Z")


@dataclass(slots=True)
class JobPods:
    """What the spec of a Job says of its pods."""

    fields: Fields
    """The rest of the spec: fields that only a Job outside of a JobSet may have."""
    replicas: int
    is_indexed: bool
    backoff_limit: int
    """Restarts of each replica, or of the job."""
    pod: Object
    failure_rules: list[Object]
    """Rules of `podFailurePolicy`."""
    deadline: Any

    def copy(self, replicas: int) -> JobPods:
        """As many replicas, with a copy of the pod."""
        return replace(self, replicas=replicas, pod=copy.deepcopy(self.pod))

    def training_container(self) -> Object | None:
        """The first container."""
        return foreign_common.training_container(self.pod)

    def command(self) -> list[str]:
        """Command and args of the first container."""
        return foreign_common.command_of(self.training_container() or {})

    def torchrun(self, replicas: int) -> TorchrunCommand | None:
        """The first container's command line of torchrun, if that launches all replicas as one
        group."""
        found = foreign_common.parse_torchrun(self.command())
        return found if found is not None and (replicas == 1 or found.is_multi_node) else None


def convert(fields: Fields) -> list[Object]:
    """The job."""
    metadata = foreign_common.metadata(fields)
    part = take_pods(fields.mapping("spec"), "NonIndexed")
    spec = part.fields
    policy = foreign_common.ttl(spec)
    beside: Object = foreign_common.run_mode(spec)
    name = str(metadata.get("name") or "")
    subdomain = str(part.pod["spec"].get("subdomain") or "")
    hosts = indexed_job_peers.Hosts(
        indexed_job_peers.host_pattern(rf"{re.escape(name)}-(?P<pod>\d+)", subdomain),
        lambda match: host_variable(_TYPE, int(match["pod"]), part.replicas),
    )
    labels = {indexed_job_peers.INDEX: "$(rank)"} if part.is_indexed else {}
    rules = _success_rules(spec.mapping("successPolicy"), part)
    launch = part.torchrun(part.replicas)
    if launch is not None:
        if rules:
            spec.add_note("successPolicy", "is left out: rank 0 decides")
        made = torchrun_spec(part, launch, _TYPE, part.backoff_limit, policy)
    else:
        made = generic_spec(
            [(_TYPE, part, labels)], hosts if subdomain and name else indexed_job_peers.no_hosts()
        )
        made |= rules
        foreign_common.note_without_ttl(spec, policy)
    return [
        foreign_common.job(
            "torchrun" if launch is not None else "none", metadata, {**made, **beside}
        )
    ]


def take_pods(spec: Fields, default_mode: str) -> JobPods:
    """Take the fields about pods from the spec of a Job. `default_mode`: its `completionMode` if it
    has none."""
    parallelism = spec.pod_count("parallelism")
    replicas = spec.pod_count("completions", parallelism)
    mode = str(spec.take("completionMode", default_mode))
    if mode not in _MODES:
        raise CannotConvert(f"{spec.at('completionMode')}: {mode} is neither of {_MODES}")
    if replicas > parallelism:
        spec.add_note("parallelism", f"all {replicas} replicas run at once, not {parallelism}")
    elif replicas < parallelism:
        spec.add_note("parallelism", f"there are {replicas} replicas, as many as completions")
    limit = spec.number("backoffLimit", _BACKOFF_LIMIT)
    if "backoffLimitPerIndex" in spec:
        limit = spec.number("backoffLimitPerIndex", 0)
        spec.add_note("backoffLimit", "each replica has a limit of its own: backoffLimitPerIndex")
    rules = [_failure_rule(each) for each in spec.mapping("podFailurePolicy").mappings("rules")]
    pod = foreign_common.template(spec)
    if not pod["spec"].get("containers"):
        raise CannotConvert(f"{spec.at('template')} has no container: there is nothing to run")
    for key, why in _DROPPED.items():
        spec.drop(key, why)
    deadline = spec.take("activeDeadlineSeconds")
    found = [rule for rule in rules if rule]
    return JobPods(spec, replicas, mode == "Indexed", limit, pod, found, deadline)


def _failure_rule(rule: Fields) -> Object | None:
    action = rule.take("action")
    found = {key: rule.take(key) for key in ("onExitCodes", "onPodConditions") if key in rule}
    if action != "FailIndex":
        return {"action": action, **found}
    rule.notes.append(Note(rule.path, "FailIndex has no counterpart: FailJob ends the job"))
    return None


def _success_rules(policy: Fields, part: JobPods) -> Object:
    found = []
    for rule in policy.mappings("rules"):
        indexes = str(rule.take("succeededIndexes", ""))
        if "succeededCount" in rule:
            rule.drop("succeededCount", "name the replicas that have to succeed: successRules")
        if indexes:
            found.append({_TYPE: _parse_indexes(indexes, rule, part.replicas)})
    return {"successRules": found} if found else {}


def _parse_indexes(text: str, rule: Fields, count: int) -> list[int]:
    """The numbers in `0-2,5`; raises CannotConvert for one that is not below `count`."""
    found: list[int] = []
    for part in text.split(","):
        match = _RANGE.match(part.strip())
        if match is None or int(match[2] or match[1]) >= count:
            raise CannotConvert(f"{rule.at('succeededIndexes')}: no indexes of {count}: {text}")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found


def host_variable(name: str, index: int, count: int) -> str | None:
    """The variable for the host of replica `index`; None if there are only `count` replicas."""
    return f"$(service.{name}[{index}].host)" if index < count else None


def torchrun_spec(
    part: JobPods, launch: TorchrunCommand, name: str, limit: int, policy: Object
) -> Object:
    """The spec of a job under torchrun; `limit`: how often it starts again, `policy`: more of its
    `runPolicy`."""
    container = part.training_container()
    assert container is not None
    container.pop("command", None)
    container["args"] = launch.script
    if text := launch.dropped_options_note():
        part.fields.add_note("template", text)
    env = container.pop("env", None) or []
    kept = [each for each in env if each.get("name") not in _SET_BY_LAUNCH]
    if len(kept) < len(env):
        names = ", ".join(e["name"] for e in env if e not in kept)
        part.fields.add_note("template", f"{names}: torchrun sets it for each process")
    if kept:
        container["env"] = kept
    notes = indexed_job_peers.substitute_peers(part.pod, {}, indexed_job_peers.no_hosts())
    if indexed_job_peers.INDEX_VARIABLE in str(part.pod):
        notes.append(
            f"{indexed_job_peers.INDEX_VARIABLE} is not set: torchrun says it in GROUP_RANK"
        )
    for text in notes:
        part.fields.add_note("template", text)
    run = {"backoffLimit": limit, **policy}
    if part.deadline is not None:
        run["activeDeadlineSeconds"] = part.deadline
    if part.failure_rules:
        run["podFailurePolicy"] = {"rules": part.failure_rules}
    replica = {
        "type": name,
        "replicas": part.replicas,
        "restartPolicy": "OnFailure" if limit else "Never",
        "template": part.pod,
    }
    return {"torchrunConfig": launch.config(), "replicaSpecs": [replica], "runPolicy": run}


def generic_spec(
    parts: list[tuple[str, JobPods, dict[str, str]]], hosts: indexed_job_peers.Hosts
) -> Object:
    """The spec of a GenericJob.

    `parts`: name and pods of each replica type, and the values of its pods' labels and annotations
    in the original.
    """
    ports = indexed_job_peers.service_ports(part.pod for _, part, _ in parts)
    hosts.is_served = bool(ports)
    entries = []
    rules: list[Object] = []
    for name, part, labels in parts:
        before = len(hosts.found)
        notes = indexed_job_peers.substitute_peers(part.pod, labels, hosts)
        if len(hosts.found) > before and not ports:
            names = ", ".join(dict.fromkeys(hosts.found[before:]))
            notes.append(
                f"{names}: there is no such host without a Service: set spec.service.ports"
            )
        words = part.command()
        if (
            _TORCHRUN_IN_SHELL.search(" ".join(words))
            and foreign_common.parse_torchrun(words) is None
        ):
            notes.append(_SHELL_NOTE)
        for text in notes:
            part.fields.add_note("template", text)
        if part.deadline is not None:
            part.fields.add_note("activeDeadlineSeconds", "jobs of this kind have no deadline")
        policy = (
            {"policy": "OnFailure", "limit": part.backoff_limit}
            if part.backoff_limit
            else {"policy": "Never"}
        )
        entry = {"type": name, "replicas": part.replicas, "restartPolicy": policy}
        entries.append({**entry, "template": part.pod})
        only = {"replicaTypes": [name]} if len(parts) > 1 else {}
        rules += [{**rule, **only} for rule in part.failure_rules]
    made: Object = {"replicaSpecs": entries}
    if hosts.found and ports:
        made["service"] = {"ports": ports}
    if rules:
        made["runPolicy"] = {"podFailurePolicy": {"rules": rules}}
    return made
