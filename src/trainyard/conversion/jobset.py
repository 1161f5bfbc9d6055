"""JobSet (jobset.x-k8s.io/v1alpha2): its replicated Jobs as types of replicas, or as one job under
torchrun where the only one starts that.

https://github.com/kubernetes-sigs/jobset/blob/main/api/jobset/v1alpha2/jobset_types.go
"""

from __future__ import annotations

import re
from typing import Any

from trainyard.conversion import batchjob, foreign_common, indexed_job_peers
from trainyard.conversion.batchjob import Part
from trainyard.conversion.field_tracking import MOST_PODS, CannotConvert, Fields, Note
from trainyard.conversion.foreign_common import Object
from trainyard.schema.dataclass import dataclass

_KEY = "jobset.sigs.k8s.io/"
_AT_ONCE = "all pods of a job start together"
_ALONE = "what has failed is started again, and not all of them"
_TOLD_OF_CHILDREN = {
    "suspend": "the whole job is paused: runMode.pause",
    "ttlSecondsAfterFinished": "the JobSet's own counts",
    "successPolicy": "all replicas of the type have to succeed",
}


@dataclass(slots=True)
class _Group:
    """The pods of a replicated Job, as one type or, where several Jobs have several pods each, as
    one type for each Job."""

    name: str
    part: Part
    jobs: int
    fields: Fields

    @property
    def is_split(self) -> bool:
        return self.jobs > 1 and self.part.replicas > 1

    def type_of(self, job: int) -> str:
        return f"{self.name}-{job}" if self.is_split else self.name

    def place(self, job: int, pod: int) -> tuple[str, int, int]:
        """Of a pod: its type here, its index in that, and how many of that there are."""
        if self.is_split:
            return self.type_of(job), pod, self.part.replicas if job < self.jobs else 0
        if self.jobs > 1:
            return self.name, job, self.jobs if pod == 0 else 0
        return self.name, pod, self.part.replicas if job == 0 else 0

    def sets(self) -> list[dict[str, list[int]]]:
        """The replicas of each Job, as finish rules name them."""
        pods = range(self.part.replicas)
        places = ([self.place(job, pod) for pod in pods] for job in range(self.jobs))
        return [{each[0][0]: [index for _, index, _ in each]} for each in places if each]


def convert(fields: Fields) -> list[Object]:
    """The job, after the claims that it makes."""
    for key in ("apiVersion", "kind"):
        fields.take(key)
    metadata, spec = foreign_common.metadata(fields), fields.into("spec")
    _placement(fields, metadata)
    groups = [_group(each) for each in spec.each("replicatedJobs")]
    if not groups:
        raise CannotConvert(f"{spec.at('replicatedJobs')} is missing: there is nothing to run")
    name = str(metadata.get("name") or "")
    claims = _claims(spec, groups, name, metadata.get("namespace"))
    beside: Object = {"runMode": {"pause": {"enabled": True}}} if spec.take("suspend") else {}
    policy = {key: spec.take(key) for key in ("ttlSecondsAfterFinished",) if key in spec}
    restarts = _restarts(spec.into("failurePolicy"))
    success, (only, *others) = spec.into("successPolicy"), groups
    part = only.part.copy(only.part.replicas * only.jobs)
    launch = None if others or only.is_split else part.torchrun(part.replicas)
    if launch is not None:
        foreign_common.told(
            success, dict.fromkeys(("operator", "targetReplicatedJobs"), "rank 0 decides")
        )
        limit = max(restarts, part.limit)
        if limit > part.limit:
            part.fields.remark("backoffLimit", f"is {limit}, the set's maxRestarts")
        made = batchjob.launched(part, launch, only.name, limit, policy)
        _network(spec, name)
    else:
        made = _pods(groups, _network(spec, name), name, spec, restarts)
        made |= _rules(success, groups)
        for key, value in policy.items():
            spec.remark(key, f"{value} is left out: jobs of this kind stay until they are deleted")
    _rest(spec, groups)
    fields.done()
    launcher = "torchrun" if launch is not None else "none"
    return [*claims, foreign_common.job(launcher, metadata, {**made, **beside})]


def _placement(fields: Fields, metadata: Object) -> None:
    """Annotations by which a JobSet keeps its Jobs apart."""
    annotations = metadata.pop("annotations", None) or {}
    kept = {key: value for key, value in annotations.items() if not key.startswith("alpha.jobset.")}
    for key in annotations.keys() - kept.keys():
        path = "metadata", "annotations", key
        fields.notes.append(Note(path, "is left out: write an affinity in the pods"))
    if kept:
        metadata["annotations"] = kept


def _group(entry: Fields) -> _Group:
    name, jobs = str(entry.take("name", "")), entry.pods("replicas")
    template = entry.into("template")
    foreign_common.told(template.into("metadata"), dict.fromkeys(("name",), "Jobs are none here"))
    part = batchjob.take(template.into("spec"), "Indexed")
    template.done()
    if jobs * part.replicas > MOST_PODS:
        raise CannotConvert(f"{entry.at('replicas')}: there are more than {MOST_PODS} pods")
    awaited = [str(d.get("name")) for d in entry.peek("dependsOn") or () if _is_to_end(d)]
    waits = f"{_AT_ONCE}: make what {' and '.join(awaited)} does init containers here"
    told = {"dependsOn": waits if awaited else _AT_ONCE, "groupName": "types have no groups"}
    foreign_common.told(entry, told)
    return _Group(name, part, jobs, entry)


def _is_to_end(dependency: Object) -> bool:
    return dependency.get("status") == "Complete"


def _claims(spec: Fields, groups: list[_Group], name: str, namespace: Any) -> list[Object]:
    """Claims that the JobSet makes, mounted where pods name them."""
    made = []
    for policy in spec.each("volumeClaimPolicies"):
        for template in policy.each("templates"):
            own = template.into("metadata")
            title = str(own.take("name", ""))
            claim = f"{title}-{name}"
            about = {"name": claim, **({"namespace": namespace} if namespace else {})}
            about |= {key: own.take(key) for key in ("labels", "annotations") if key in own}
            own.done()
            made.append(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": about,
                    "spec": template.take("spec", {}),
                }
            )
            template.done()
            for group in groups:
                _mount(group.part.pod["spec"], title, claim)
        policy.tell("retentionPolicy", "claims stay until they are deleted")
        policy.done()
    return made


def _mount(pod: Object, title: str, claim: str) -> None:
    containers = [*(pod.get("containers") or ()), *(pod.get("initContainers") or ())]
    if any(m.get("name") == title for c in containers for m in c.get("volumeMounts") or ()):
        volume = {"name": title, "persistentVolumeClaim": {"claimName": claim}}
        pod["volumes"] = [*(pod.get("volumes") or ()), volume]


def _restarts(policy: Fields) -> int:
    """How often the whole set starts again."""
    for number, rule in enumerate(policy.each("rules")):
        what = f"rules[{number}], {rule.peek('action')}, is left out"
        why = "podFailurePolicy judges failures, by exit codes and reasons"
        policy.remark("rules", f"{what}: {why}")
    found = policy.number("maxRestarts", 0)
    policy.tell("restartStrategy", "spec.runPolicy.restartMode of jobs under torchrun is alike")
    policy.done()
    return found


def _network(spec: Fields, name: str) -> str:
    """The subdomain of the pods; empty where they have none."""
    network = spec.into("network")
    subdomain = str(network.take("subdomain", name))
    is_named = network.take("enableDNSHostnames", True)
    if not network.take("publishNotReadyAddresses", True):
        network.remark("publishNotReadyAddresses", "names are there before pods are ready")
    network.done()
    return subdomain if is_named else ""


def _pods(groups: list[_Group], subdomain: str, name: str, spec: Fields, restarts: int) -> Object:
    found = {group.name: group for group in groups}

    def host(match: re.Match[str]) -> str | None:
        place = found[match["type"]].place(int(match["job"]), int(match["pod"]))
        return batchjob.host(*place)

    types = "|".join(map(re.escape, sorted(found, key=len, reverse=True)))
    one = rf"{re.escape(name)}-(?P<type>{types})-(?P<job>\d+)-(?P<pod>\d+)"
    is_found = bool(name and subdomain)
    hosts = (
        indexed_job_peers.Hosts(indexed_job_peers.host_pattern(one, subdomain), host)
        if is_found
        else indexed_job_peers.nobody()
    )
    coordinator = _coordinator(spec.into("coordinator"), found)
    parts = []
    before = 0
    for group in groups:
        if restarts > group.part.limit:
            group.part.limit = restarts
            group.fields.remark("template", f"restarts of the set, {restarts}: {_ALONE}")
        known = {
            **({f"{_KEY}jobset-name": name} if name else {}),
            f"{_KEY}replicatedjob-name": group.name,
            f"{_KEY}replicatedjob-replicas": str(group.jobs),
            f"{_KEY}global-replicas": str(sum(each.jobs for each in groups)),
            **({f"{_KEY}coordinator": coordinator} if coordinator else {}),
        }
        parts += _types(group, known, before)
        before += group.jobs
    return batchjob.pods_alone(parts, hosts)


def _types(
    group: _Group, known: dict[str, str], before: int
) -> list[tuple[str, Part, dict[str, str]]]:
    """Its types of replicas, with what their pods' labels say; `before`: Jobs of earlier groups."""
    part = group.part
    if not group.is_split:
        own, index = ("$(rank)", "0") if group.jobs > 1 else ("0", "$(rank)")
        known = {**known, f"{_KEY}job-index": own, indexed_job_peers.INDEX: index}
        if own == "0":
            known[f"{_KEY}job-global-index"] = str(before)
        return [(group.name, part.copy(part.replicas * group.jobs), known)]
    found = []
    for job in range(group.jobs):
        where = {f"{_KEY}job-index": str(job), f"{_KEY}job-global-index": str(before + job)}
        copied = part.copy(part.replicas)
        found.append(
            (group.type_of(job), copied, {**known, **where, indexed_job_peers.INDEX: "$(rank)"})
        )
    return found


def _coordinator(fields: Fields, found: dict[str, _Group]) -> str:
    """What stands for the host of the pod that leads; empty without one."""
    group = found.get(str(fields.take("replicatedJob", "")))
    job, pod = fields.number("jobIndex", 0), fields.number("podIndex", 0)
    fields.done()
    return (batchjob.host(*group.place(job, pod)) or "") if group else ""


def _rules(policy: Fields, groups: list[_Group]) -> Object:
    """When the job has succeeded and failed, where that is not when all have or one has."""
    operator = policy.take("operator", "All")
    targets = policy.take("targetReplicatedJobs") or [group.name for group in groups]
    policy.done()
    if unknown := set(targets) - {group.name for group in groups}:
        raise CannotConvert(f"{policy.at('targetReplicatedJobs')}: there is no {min(unknown)}")
    sets = [each for group in groups if group.name in targets for each in group.sets()]
    everything = [each for group in groups for each in group.sets()]
    if operator == "Any":
        success = sets
    elif operator == "All" and len(sets) < len(everything):
        success = [_together(sets)]
    elif operator == "All":
        return {}
    else:
        raise CannotConvert(f"{policy.at('operator')}: {operator} is neither All nor Any")
    # Who is needed in any case fails the job without a rule.
    needed = set(_replicas(success[0])) if len(success) == 1 else set()
    rest = [each for group in everything for each in _replicas(group) if each not in needed]
    failure = {"failureRules": [{name: [index]} for name, index in rest]} if rest else {}
    return {"successRules": success, **failure}


def _replicas(rule: dict[str, list[int]]) -> list[tuple[str, int]]:
    return [(name, index) for name, indexes in rule.items() for index in indexes]


def _together(sets: list[dict[str, list[int]]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for each in sets:
        for name, indexes in each.items():
            found.setdefault(name, []).extend(indexes)
    return found


def _rest(spec: Fields, groups: list[_Group]) -> None:
    """Tell of what is left."""
    foreign_common.told(spec.into("startupPolicy"), {"startupPolicyOrder": _AT_ONCE})
    for group in groups:
        foreign_common.told(group.part.fields, _TOLD_OF_CHILDREN)
    foreign_common.told(spec, {"coordinator": "rank 0 is worker-0: RANK, MASTER_ADDR"})
