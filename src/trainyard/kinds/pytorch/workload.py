"""PyTorchTrainingJob: ranks across replica types, launched plainly or by torchrun.

A replica type named `master` holds the first ranks, the others follow in list order. Plain
replicas get MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE; torchrun is told by flags alone (a
`PET_NNODES` in the environment would make a user's own `torchrun --standalone` hang).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainyard.kinds.pytorch import scaling, torchrun, viewer
from trainyard.kinds.pytorch.spec import (
    PyTorchReplicaSpec,
    PyTorchTrainingJob,
    PyTorchTrainingJobSpec,
)
from trainyard.kinds.shared import labels, modes, names, network, pods, services
from trainyard.kinds.shared.digest import spec_hash
from trainyard.kinds.shared.gang import Gang, Membership, gang_of
from trainyard.kinds.shared.identity import Identity
from trainyard.kinds.shared.pod_rules import gpu_count
from trainyard.kinds.shared.settings import GangBackend, Settings
from trainyard.kinds.shared.workload import (
    CleanUpPolicy,
    Dependent,
    Elastic,
    Manifest,
    ReplicaKey,
    ReplicaType,
    RestartPolicy,
    Scope,
    Workload,
)

MASTER = "master"
TRAINING_CONTAINERS = ("pytorch", "python")
ELASTIC_WITHOUT_TORCHRUN = "spec.elastic is ignored: only a job with torchrunConfig can be elastic."


def describe(job: PyTorchTrainingJob, settings: Settings) -> Workload:
    """The workload of a valid job."""
    return _Description(job, settings).workload()


@dataclass(frozen=True)
class _Description:
    job: PyTorchTrainingJob
    settings: Settings

    @property
    def spec(self) -> PyTorchTrainingJobSpec:
        return self.job.spec

    @cached_property
    def identity(self) -> Identity:
        return Identity.of(self.job)

    @cached_property
    def specs(self) -> Sequence[PyTorchReplicaSpec]:
        """By rank: sorting is stable, so that all but `master` keep their order."""
        return sorted(self.spec.replica_specs, key=lambda spec: spec.type != MASTER)

    @cached_property
    def elastic(self) -> Elastic | None:
        bounds = self.spec.elastic_range
        return Elastic(max(bounds.minimum, 1), bounds.maximum) if bounds else None

    @cached_property
    def counts(self) -> dict[str, int]:
        """Replicas wanted per type."""
        bounds = self.spec.elastic_range
        if bounds is None or self.elastic is None:
            return {spec.type: spec.replicas for spec in self.specs}
        total = min(max(bounds.expected, self.elastic.min_replicas), self.elastic.max_replicas)
        shares = [scaling.Share(spec.replicas, spec.scaling_weight) for spec in self.specs]
        allocated = scaling.allocate(total, shares)
        return dict(zip((spec.type for spec in self.specs), allocated, strict=True))

    @cached_property
    def first_rank(self) -> dict[str, int]:
        ranks, next_rank = {}, 0
        for replica_type, count in self.counts.items():
            ranks[replica_type] = next_rank
            next_rank += count
        return ranks

    @cached_property
    def rank0(self) -> ReplicaKey:
        return ReplicaKey(next((t for t, count in self.counts.items() if count), ""), 0)

    @cached_property
    def endpoint(self) -> network.Endpoint:
        return network.endpoint(self.pod_name(self.rank0), self.identity.uid, self.settings)

    @property
    def survivors_stay(self) -> bool:
        """Whether agents that live on take in those that come anew, as torchrun does where it
        may restart its workers."""
        config = self.spec.torchrun_config
        scope = self.spec.run_policy.restart_scope
        may_restart = self.elastic is not None or bool(config.max_restarts)
        return config.enabled and scope is None and may_restart

    @cached_property
    def gang(self) -> Gang | None:
        return gang_of(
            self.identity,
            self.settings.gang_backend,
            self.spec.scheduler,
            total=sum(self.counts.values()),
            min_member=self.elastic.min_replicas if self.elastic else None,
        )

    def pod_name(self, key: ReplicaKey) -> str:
        return names.pod_name(self.identity.base, key.type, key.ordinal)

    def workload(self) -> Workload:
        spec, policy = self.spec, self.spec.run_policy
        under_torchrun = spec.torchrun_config.enabled
        warns = spec.elastic.enabled and not under_torchrun
        return Workload(
            kind=self.job.kind,
            api_version=self.job.api_version,
            resource=self.identity.resource,
            namespace=self.identity.namespace,
            name=self.identity.name,
            uid=self.identity.uid,
            generation=self.job.metadata.generation,
            base=self.identity.base,
            types=self._types(),
            pod_name=self.pod_name,
            build_pod=self.build_pod,
            dependents=self._dependents(),
            decides=self.rank0,
            scope=Scope.REPLICA if policy.restart_scope == "Replica" else Scope.JOB,
            survivors_stay=self.survivors_stay,
            clean_up=CleanUpPolicy(policy.clean_up_policy),
            active_deadline_seconds=policy.active_deadline_seconds,
            ttl_seconds_after_finished=policy.ttl_seconds_after_finished,
            paused=spec.run_mode.pause.enabled,
            debug=spec.run_mode.debug.enabled,
            elastic=self.elastic,
            needs_gang=bool(self.gang and self.gang.backend is GangBackend.NONE),
            warnings=(ELASTIC_WITHOUT_TORCHRUN,) if warns else (),
            spec_hash=spec_hash(self.job),
        )

    def _types(self) -> tuple[ReplicaType, ...]:
        limit = self.spec.run_policy.backoff_limit
        return tuple(
            ReplicaType(
                name=spec.type,
                replicas=self.counts[spec.type],
                policy=RestartPolicy(spec.restart_policy),
                limit=limit,
                main_container=pods.container_name(spec.template, TRAINING_CONTAINERS),
            )
            for spec in self.specs
        )

    def _dependents(self) -> tuple[Dependent, ...]:
        found = [services.headless(self.identity)]
        if self.gang:
            found += self.gang.dependents()
        if self.spec.tensorboard_spec:
            found.append(viewer.tensorboard(self.identity, self.spec.tensorboard_spec))
        return tuple(found)

    def build_pod(
        self, key: ReplicaKey, attempt: int, *, pod_group: str, resumed: bool
    ) -> Manifest:
        """The pod of one replica; see `workload.PodBuilder`."""
        spec = next(spec for spec in self.specs if spec.type == key.type)
        pod = pods.assemble(
            self.identity,
            key,
            self.pod_name(key),
            spec.template,
            self.settings,
            attempt=attempt,
            membership=self.gang.membership(key.type, pod_group) if self.gang else Membership(),
            extra_labels={labels.JOB_ROLE: labels.MASTER_ROLE} if key == self.rank0 else None,
        )
        self._launch(pod, key, spec, resumed=resumed)
        return pod

    def _launch(
        self, pod: Manifest, key: ReplicaKey, spec: PyTorchReplicaSpec, *, resumed: bool
    ) -> None:
        name = pods.container_name(spec.template, TRAINING_CONTAINERS)
        debug = modes.debug_set(self.spec.run_mode, key.type)
        resume = modes.resume_spec(self.spec.run_mode, key.type) if resumed else None
        under_torchrun = self.spec.torchrun_config.enabled
        if not under_torchrun:
            pods.put_env_first(pod, self._plain_env(key))
        elif self.survivors_stay:
            pods.put_env_first(pod, torchrun.REJOIN_ENV)
        if debug:
            if under_torchrun:
                pods.put_env_first(pod, self._master_env())
            modes.idle(pod, name, debug)
            return
        if resume and resume.skip_init_container:
            modes.skip_init(pod)
        args = resume.args if resume else None
        command = resume.command if resume else None
        if not under_torchrun:
            change: dict[str, Any] = {}
            if command is not None:
                change["command"] = list(command)
            if args is not None:
                change["args"] = list(args)
            pods.change_container(pod, name, **change)
        elif command is not None:
            pods.change_container(pod, name, command=list(command), args=list(args or ()))
        else:
            container = _container(spec.template, name)
            script = args if args is not None else container.get("args") or ()
            arguments = self._torchrun_args(key, container, script)
            pods.change_container(pod, name, command=torchrun.command(), args=arguments)

    def _master_env(self) -> dict[str, str]:
        return {"MASTER_ADDR": self.endpoint.host, "MASTER_PORT": str(self.endpoint.port)}

    def _plain_env(self, key: ReplicaKey) -> dict[str, str]:
        return {
            **self._master_env(),
            "RANK": str(self.first_rank[key.type] + key.ordinal),
            "WORLD_SIZE": str(sum(self.counts.values())),
        }

    def _torchrun_args(
        self, key: ReplicaKey, container: Mapping[str, Any], script: Sequence[str]
    ) -> list[str]:
        config = self.spec.torchrun_config
        nodes = str(sum(self.counts.values()))
        if self.elastic:
            nodes = f"{self.elastic.min_replicas}:{self.elastic.max_replicas}"
        processes = config.proc_per_node
        if processes == "gpu":  # torchrun's own `gpu` fails where torch finds none
            processes = str(gpu_count(container) or 1)
        return torchrun.arguments(
            nodes=nodes,
            processes=processes,
            backend=config.rdzv_backend,
            endpoint=f"{self.endpoint.host}:{self.endpoint.port}",
            run_id=self.identity.base,
            role=key.type,
            max_restarts=config.max_restarts,
            elastic=self.elastic is not None,
            extra=config.extra_options,
            script=script,
        )


def _container(template: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    containers = template.get("spec", {}).get("containers") or ()
    return next((c for c in containers if c.get("name") == name), {})
