"""JobSet (jobset.x-k8s.io/v1alpha2): its replicated Jobs as types of replicas, or as one job under
torchrun where the only one starts that.

https://github.com/kubernetes-sigs/jobset/blob/main/api/jobset/v1alpha2/jobset_types.go
"""

from __future__ import annotations

import re
from typing import Any

from trainyard.conversion import batchjob, foreign_common, indexed_job_peers
from trainyard.conversion.batchjob import JobPods
from trainyard.conversion.field_tracking import MAX_PODS, CannotConvert, Fields, Note
from trainyard.conversion.foreign_common import Object
from trainyard.schema.dataclass import dataclass

_KEY = "jobset.sigs.k8s.io/"
_AT_ONCE = "all pods of a job start together"
_ALONE = "what has failed is started again, and not all of them"
_DROPPED_OF_CHILDREN = {
    "suspend": "the whole job is paused: runMode.pause",
    "ttlSecondsAfterFinished": "the JobSet's own counts",
    "successPolicy": "all replicas of the type have to succeed",
}


@dataclass(slots=True)
class _ReplicatedJob:
    """A replicated Job: one replica type, or one for each Job if several have several pods each."""

    name: str
    part: JobPods
    jobs: int
    fields: Fields

    @property
    def is_split(self) -> bool:
        return self.jobs > 1 and self.part.replicas > 1

    def type_of(self, job: int) -> str:
        return f"{self.name}-{job}" if self.is_split else self.name

    def place(self, job: int, pod: int) -> tuple[str, int, int]:
        """The replica type of a pod, its index, and the number of replicas of that type."""
        if self.is_split:
            return self.type_of(job), pod, self.part.replicas if job < self.jobs else 0
        if self.jobs > 1:
            return self.name, job, self.jobs if pod == 0 else 0
        return self.name, pod, self.part.replicas if job == 0 else 0

    def finish_rules(self) -> list[dict[str, list[int]]]:
        """For each Job, the finish rule that names all of its replicas."""
        pods = range(self.part.replicas)
        places = ([self.place(job, pod) for pod in pods] for job in range(self.jobs))
        return [{each[0][0]: [index for _, index, _ in each]} for each in places if each]


def convert(fields: Fields) -> list[Object]:
    """The claims that the JobSet makes, and the job."""
    metadata, spec = foreign_common.metadata(fields), fields.mapping("spec")
    _drop_placement(fields, metadata)
    groups = [_group(each) for each in spec.mappings("replicatedJobs")]
    if not groups:
        raise CannotConvert(f"{spec.at('replicatedJobs')} is missing: there is nothing to run")
    name = str(metadata.get("name") or "")
    claims = _claims(spec, groups, name, metadata.get("namespace"))
    beside: Object = foreign_common.run_mode(spec)
    policy = foreign_common.ttl(spec)
    restarts = _restarts(spec.mapping("failurePolicy"))
    success, (only, *others) = spec.mapping("successPolicy"), groups
    part = only.part.copy(only.part.replicas * only.jobs)
    launch = None if others or only.is_split else part.torchrun(part.replicas)
    if launch is not None:
        success.drop_all(dict.fromkeys(("operator", "targetReplicatedJobs"), "rank 0 decides"))
        limit = max(restarts, part.backoff_limit)
        if limit > part.backoff_limit:
            part.fields.add_note("backoffLimit", f"is {limit}, the set's maxRestarts")
        made = batchjob.torchrun_spec(part, launch, only.name, limit, policy)
        _network(spec, name)
    else:
        made = _generic_spec(groups, _network(spec, name), name, spec, restarts)
        made |= _finish_rules(success, groups)
        foreign_common.note_without_ttl(spec, policy)
    _drop_rest(spec, groups)
    launcher = "torchrun" if launch is not None else "none"
    return [*claims, foreign_common.job(launcher, metadata, {**made, **beside})]


def _drop_placement(fields: Fields, metadata: Object) -> None:
    """Drop the annotations that spread the Jobs of a JobSet over nodes."""
    annotations = metadata.pop("annotations", None) or {}
    kept = {key: value for key, value in annotations.items() if not key.startswith("alpha.jobset.")}
    for key in annotations.keys() - kept.keys():
        path = "metadata", "annotations", key
        fields.notes.append(Note(path, "is left out: write an affinity in the pods"))
    if kept:
        metadata["annotations"] = kept


def _group(entry: Fields) -> _ReplicatedJob:
    name, jobs = str(entry.take("name", "")), entry.pod_count("replicas")
    template = entry.mapping("template")
    template.mapping("metadata").drop_all(dict.fromkeys(("name",), "Jobs are none here"))
    part = batchjob.take_pods(template.mapping("spec"), "Indexed")
    if jobs * part.replicas > MAX_PODS:
        raise CannotConvert(f"{entry.at('replicas')}: there are more than {MAX_PODS} pods")
    awaited = [str(d.get("name")) for d in entry.peek("dependsOn") or () if _waits_for_end(d)]
    waits = f"{_AT_ONCE}: make what {' and '.join(awaited)} does init containers here"
    reasons = {"dependsOn": waits if awaited else _AT_ONCE, "groupName": "types have no groups"}
    entry.drop_all(reasons)
    return _ReplicatedJob(name, part, jobs, entry)


def _waits_for_end(dependency: Object) -> bool:
    return dependency.get("status") == "Complete"


def _claims(spec: Fields, groups: list[_ReplicatedJob], name: str, namespace: Any) -> list[Object]:
    """The claims that the JobSet makes; pods that mount them get a volume."""
    made = []
    for policy in spec.mappings("volumeClaimPolicies"):
        for template in policy.mappings("templates"):
            own = template.mapping("metadata")
            title = str(own.take("name", ""))
            claim = f"{title}-{name}"
            about = {"name": claim, **({"namespace": namespace} if namespace else {})}
            about |= {key: own.take(key) for key in ("labels", "annotations") if key in own}
            made.append(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": about,
                    "spec": template.take("spec", {}),
                }
            )
            for group in groups:
                _mount(group.part.pod["spec"], title, claim)
        policy.drop("retentionPolicy", "claims stay until they are deleted")
    return made


def _mount(pod: Object, title: str, claim: str) -> None:
    containers = [*(pod.get("containers") or ()), *(pod.get("initContainers") or ())]
    if any(m.get("name") == title for c in containers for m in c.get("volumeMounts") or ()):
        volume = {"name": title, "persistentVolumeClaim": {"claimName": claim}}
        pod["volumes"] = [*(pod.get("volumes") or ()), volume]


def _restarts(policy: Fields) -> int:
    """Restarts of the whole set."""
    for number, rule in enumerate(policy.take("rules") or ()):
        what = f"rules[{number}], {rule.get('action')}, is left out"
        why = "podFailurePolicy judges failures, by exit codes and reasons"
        policy.add_note("rules", f"{what}: {why}")
    found = policy.number("maxRestarts", 0)
    policy.drop("restartStrategy", "spec.runPolicy.restartMode of jobs under torchrun is alike")
    return found


def _network(spec: Fields, name: str) -> str:
    """The subdomain of the pods; "" if they have no host names."""
    network = spec.mapping("network")
    subdomain = str(network.take("subdomain", name))
    is_named = network.take("enableDNSHostnames", True)
    if not network.take("publishNotReadyAddresses", True):
        network.add_note("publishNotReadyAddresses", "names are there before pods are ready")
    return subdomain if is_named else ""


def _generic_spec(
    groups: list[_ReplicatedJob], subdomain: str, name: str, spec: Fields, restarts: int
) -> Object:
    found = {group.name: group for group in groups}

    def host(match: re.Match[str]) -> str | None:
        place = found[match["type"]].place(int(match["job"]), int(match["pod"]))
        return batchjob.host_variable(*place)

    types = "|".join(map(re.escape, sorted(found, key=len, reverse=True)))
    one = rf"{re.escape(name)}-(?P<type>{types})-(?P<job>\d+)-(?P<pod>\d+)"
    is_found = bool(name and subdomain)
    hosts = (
        indexed_job_peers.Hosts(indexed_job_peers.host_pattern(one, subdomain), host)
        if is_found
        else indexed_job_peers.no_hosts()
    )
    coordinator = _coordinator(spec.mapping("coordinator"), found)
    parts = []
    before = 0
    for group in groups:
        if restarts > group.part.backoff_limit:
            group.part.backoff_limit = restarts
            group.fields.add_note("template", f"restarts of the set, {restarts}: {_ALONE}")
        labels = {
            **({f"{_KEY}jobset-name": name} if name else {}),
            f"{_KEY}replicatedjob-name": group.name,
            f"{_KEY}replicatedjob-replicas": str(group.jobs),
            f"{_KEY}global-replicas": str(sum(each.jobs for each in groups)),
            **({f"{_KEY}coordinator": coordinator} if coordinator else {}),
        }
        parts += _types(group, labels, before)
        before += group.jobs
    return batchjob.generic_spec(parts, hosts)


def _types(
    group: _ReplicatedJob, labels: dict[str, str], before: int
) -> list[tuple[str, JobPods, dict[str, str]]]:
    """Name, pods and labels of its replica types. `before`: how many Jobs earlier groups have."""
    part = group.part
    if not group.is_split:
        own, index = ("$(rank)", "0") if group.jobs > 1 else ("0", "$(rank)")
        labels = {**labels, f"{_KEY}job-index": own, indexed_job_peers.INDEX: index}
        if own == "0":
            labels[f"{_KEY}job-global-index"] = str(before)
        return [(group.name, part.copy(part.replicas * group.jobs), labels)]
    found = []
    for job in range(group.jobs):
        where = {f"{_KEY}job-index": str(job), f"{_KEY}job-global-index": str(before + job)}
        copied = part.copy(part.replicas)
        found.append(
            (group.type_of(job), copied, {**labels, **where, indexed_job_peers.INDEX: "$(rank)"})
        )
    return found


def _coordinator(fields: Fields, found: dict[str, _ReplicatedJob]) -> str:
    """The variable for the coordinator's host; "" if there is none."""
    group = found.get(str(fields.take("replicatedJob", "")))
    job, pod = fields.number("jobIndex", 0), fields.number("podIndex", 0)
    return (batchjob.host_variable(*group.place(job, pod)) or "") if group else ""


def _finish_rules(policy: Fields, groups: list[_ReplicatedJob]) -> Object:
    """Success and failure rules; empty if all replicas have to succeed."""
    operator = policy.take("operator", "All")
    targets = policy.take("targetReplicatedJobs") or [group.name for group in groups]
    if unknown := set(targets) - {group.name for group in groups}:
        raise CannotConvert(f"{policy.at('targetReplicatedJobs')}: there is no {min(unknown)}")
    sets = [each for group in groups if group.name in targets for each in group.finish_rules()]
    everything = [each for group in groups for each in group.finish_rules()]
    if operator == "Any":
        success = sets
    elif operator == "All" and len(sets) < len(everything):
        success = [_together(sets)]
    elif operator == "All":
        return {}
    else:
        raise CannotConvert(f"{policy.at('operator')}: {operator} is neither All nor Any")
    # The failure of a replica that every success needs fails the job without a rule.
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


def _drop_rest(spec: Fields, groups: list[_ReplicatedJob]) -> None:
    spec.mapping("startupPolicy").drop_all({"startupPolicyOrder": _AT_ONCE})
    for group in groups:
        group.part.fields.drop_all(_DROPPED_OF_CHILDREN)
    spec.drop_all({"coordinator": "rank 0 is worker-0: RANK, MASTER_ADDR"})
