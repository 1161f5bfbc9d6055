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
from trainyard.conversion.foreign_common import Object, Torchrun
from trainyard.schema.dataclass import dataclass

_TYPE = "worker"
_MODES = ("Indexed", "NonIndexed")
_BACKOFF_LIMIT = 6
_BY_THE_LAUNCH = ("MASTER_ADDR", "MASTER_PORT", "RANK", "NODE_RANK", "WORLD_SIZE")
_TOLD = {
    "manualSelector": "pods have the labels of their job",
    "selector": "pods have the labels of their job",
    "podReplacementPolicy": "a replica starts again when its pod is gone",
    "maxFailedIndexes": "a job fails with its first replica that fails for good",
}
_BY_A_SHELL = re.compile(r"\b(?:torchrun|torch\.distributed\.(?:run|launch))\b")
_SHELL_TEXT = (
    "it starts torchrun in a script of its own, of which the job knows nothing: with torchrun and "
    "its words as the command itself the job would start it"
)
_RANGE = re.compile(r"(\d+)(?:-(\d+))?\Z")


@dataclass(slots=True)
class Part:
    """What a Job says of its pods."""

    fields: Fields
    """Of its spec: what only a Job that stands alone has is left in it."""
    replicas: int
    is_indexed: bool
    limit: int
    """How often what failed is started again."""
    pod: Object
    rules: list[Object]
    """Of its `podFailurePolicy`."""
    deadline: Any

    def copy(self, replicas: int) -> Part:
        """So many of them, with a pod of its own."""
        return replace(self, replicas=replicas, pod=copy.deepcopy(self.pod))

    def training(self) -> Object | None:
        return foreign_common.training(self.pod, ())

    def words(self) -> list[str]:
        container = self.training() or {}
        return [str(w) for key in ("command", "args") for w in container.get(key) or ()]

    def torchrun(self, replicas: int) -> Torchrun | None:
        """How its first container starts torchrun, if it does; not where each of several replicas
        trains on its own."""
        found = foreign_common.torchrun(self.words())
        return found if found is not None and (replicas == 1 or found.joins) else None


def convert(fields: Fields) -> list[Object]:
    """The job."""
    for key in ("apiVersion", "kind"):
        fields.take(key)
    metadata = foreign_common.metadata(fields)
    part = take(fields.into("spec"), "NonIndexed")
    spec = part.fields
    policy = {key: spec.take(key) for key in ("ttlSecondsAfterFinished",) if key in spec}
    beside: Object = {"runMode": {"pause": {"enabled": True}}} if spec.take("suspend") else {}
    name = str(metadata.get("name") or "")
    subdomain = str(part.pod["spec"].get("subdomain") or "")
    hosts = indexed_job_peers.Hosts(
        indexed_job_peers.host_pattern(rf"{re.escape(name)}-(?P<pod>\d+)", subdomain),
        lambda match: host(_TYPE, int(match["pod"]), part.replicas),
    )
    known = {indexed_job_peers.INDEX: "$(rank)"} if part.is_indexed else {}
    rules = _success(spec.into("successPolicy"), part)
    launch = part.torchrun(part.replicas)
    if launch is not None:
        if rules:
            spec.remark("successPolicy", "is left out: rank 0 decides")
        made = launched(part, launch, _TYPE, part.limit, policy)
    else:
        made = pods_alone(
            [(_TYPE, part, known)], hosts if subdomain and name else indexed_job_peers.nobody()
        )
        made |= rules
        for key, value in policy.items():
            spec.remark(key, f"{value} is left out: jobs of this kind stay until they are deleted")
    spec.done()
    fields.done()
    return [
        foreign_common.job(
            "torchrun" if launch is not None else "none", metadata, {**made, **beside}
        )
    ]


def take(spec: Fields, mode: str) -> Part:
    """What the spec of a Job says, whose pods are indexed or not (`mode`) by default."""
    parallelism = spec.pods("parallelism")
    replicas = spec.pods("completions", parallelism)
    mode = str(spec.take("completionMode", mode))
    if mode not in _MODES:
        raise CannotConvert(f"{spec.at('completionMode')}: {mode} is neither of {_MODES}")
    if replicas > parallelism:
        spec.remark("parallelism", f"all {replicas} replicas run at once, not {parallelism}")
    elif replicas < parallelism:
        spec.remark("parallelism", f"there are {replicas} replicas, as many as completions")
    limit = spec.number("backoffLimit", _BACKOFF_LIMIT)
    if "backoffLimitPerIndex" in spec:
        limit = spec.number("backoffLimitPerIndex", 0)
        spec.remark("backoffLimit", "each replica has a limit of its own: backoffLimitPerIndex")
    rules = [_rule(each) for each in spec.into("podFailurePolicy").each("rules")]
    pod = foreign_common.template(spec, "")
    if not pod["spec"].get("containers"):
        raise CannotConvert(f"{spec.at('template')} has no container: there is nothing to run")
    for key, why in _TOLD.items():
        spec.tell(key, why)
    deadline = spec.take("activeDeadlineSeconds")
    found = [rule for rule in rules if rule]
    return Part(spec, replicas, mode == "Indexed", limit, pod, found, deadline)


def _rule(rule: Fields) -> Object | None:
    action = rule.take("action")
    found = {key: rule.take(key) for key in ("onExitCodes", "onPodConditions") if key in rule}
    rule.done()
    if action != "FailIndex":
        return {"action": action, **found}
    rule.notes.append(Note(rule.path, "FailIndex has no counterpart: FailJob ends the job"))
    return None


def _success(policy: Fields, part: Part) -> Object:
    found = []
    for rule in policy.each("rules"):
        indexes = str(rule.take("succeededIndexes", ""))
        if "succeededCount" in rule:
            rule.tell("succeededCount", "name the replicas that have to succeed: successRules")
        if indexes:
            found.append({_TYPE: _numbers(indexes, rule, part.replicas)})
        rule.done()
    policy.done()
    return {"successRules": found} if found else {}


def _numbers(text: str, rule: Fields, count: int) -> list[int]:
    """`0-2,5`."""
    found: list[int] = []
    for part in text.split(","):
        match = _RANGE.match(part.strip())
        if match is None or int(match[2] or match[1]) >= count:
            raise CannotConvert(f"{rule.at('succeededIndexes')}: no indexes of {count}: {text}")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found


def host(name: str, index: int, count: int) -> str | None:
    """What stands for the host name of a replica; None if there is none."""
    return f"$(service.{name}[{index}].host)" if index < count else None


def launched(part: Part, launch: Torchrun, name: str, limit: int, policy: Object) -> Object:
    """The spec of a job under torchrun; `limit`: how often it starts again, `policy`: more of its
    `runPolicy`."""
    container = part.training()
    assert container is not None
    container.pop("command", None)
    container["args"] = launch.words
    if text := launch.left_out():
        part.fields.remark("template", text)
    env = container.pop("env", None) or []
    kept = [each for each in env if each.get("name") not in _BY_THE_LAUNCH]
    if len(kept) < len(env):
        names = ", ".join(e["name"] for e in env if e not in kept)
        part.fields.remark("template", f"{names}: torchrun sets it for each process")
    if kept:
        container["env"] = kept
    said = indexed_job_peers.place(part.pod, {}, indexed_job_peers.nobody())
    if indexed_job_peers.INDEX_VARIABLE in str(part.pod):
        said.append(
            f"{indexed_job_peers.INDEX_VARIABLE} is not set: torchrun says it in GROUP_RANK"
        )
    for text in said:
        part.fields.remark("template", text)
    run = {"backoffLimit": limit, **policy}
    if part.deadline is not None:
        run["activeDeadlineSeconds"] = part.deadline
    if part.rules:
        run["podFailurePolicy"] = {"rules": part.rules}
    replica = {
        "type": name,
        "replicas": part.replicas,
        "restartPolicy": "OnFailure" if limit else "Never",
        "template": part.pod,
    }
    return {"torchrunConfig": launch.config(), "replicaSpecs": [replica], "runPolicy": run}


def pods_alone(
    parts: list[tuple[str, Part, dict[str, str]]], hosts: indexed_job_peers.Hosts
) -> Object:
    """The spec of a GenericJob of types of replicas, each with what labels and annotations of its
    pods say there."""
    ports = indexed_job_peers.ports(part.pod for _, part, _ in parts)
    hosts.is_served = bool(ports)
    entries = []
    rules: list[Object] = []
    for name, part, known in parts:
        met = len(hosts.found)
        said = indexed_job_peers.place(part.pod, known, hosts)
        if len(hosts.found) > met and not ports:
            names = ", ".join(dict.fromkeys(hosts.found[met:]))
            said.append(f"{names}: there is no such host without a Service: set spec.service.ports")
        words = part.words()
        if _BY_A_SHELL.search(" ".join(words)) and foreign_common.torchrun(words) is None:
            said.append(_SHELL_TEXT)
        for text in said:
            part.fields.remark("template", text)
        if part.deadline is not None:
            part.fields.remark("activeDeadlineSeconds", "jobs of this kind have no deadline")
        policy = {"policy": "OnFailure", "limit": part.limit} if part.limit else {"policy": "Never"}
        entry = {"type": name, "replicas": part.replicas, "restartPolicy": policy}
        entries.append({**entry, "template": part.pod})
        only = {"replicaTypes": [name]} if len(parts) > 1 else {}
        rules += [{**rule, **only} for rule in part.rules]
    made: Object = {"replicaSpecs": entries}
    if hosts.found and ports:
        made["service"] = {"ports": ports}
    if rules:
        made["runPolicy"] = {"podFailurePolicy": {"rules": rules}}
    return made
