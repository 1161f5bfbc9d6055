"""PyTorchTrainingJob: ranks across replica types, launched plainly or by torchrun.

A replica type named `master` holds the first ranks, the others follow in list order. Plain
replicas get MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE; torchrun gets flags alone (a
`PET_NNODES` in the environment would make a user's own `torchrun --standalone` hang) (decision 14).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

from trainyard.kinds.pytorch import torchrun_launch
from trainyard.kinds.pytorch.spec import (
    PyTorchReplicaSpec,
    PyTorchTrainingJob,
    PyTorchTrainingJobSpec,
)
from trainyard.kinds.shared import labels
from trainyard.kinds.shared.hang import observer_injection
from trainyard.kinds.shared.in_place import in_place_injection
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.node_check import node_check_injection
from trainyard.kinds.shared.pods import command_wrapper, pod_assembly, pod_template_rules
from trainyard.kinds.shared.pods.pod_template_rules import gpu_count
from trainyard.kinds.shared.workload import (
    Dependent,
    Manifest,
    ReplicaKey,
    ReplicaType,
    Scope,
    SuccessPolicy,
    Workload,
)
from trainyard.kinds.shared.workload_factory import Endpoint, ReplicaStart, WorkloadFactory
from trainyard.kinds.tensorboard import TENSOR_BOARDS, log_sources
from trainyard.kube.embedded_contract import OBSERVE

RESTART_COUNT = "TORCHELASTIC_RESTART_COUNT"
"""By this variable scripts recognise a restart; torchrun sets it for its own ranks.
https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables"""


def describe(job: PyTorchTrainingJob, settings: Settings) -> Workload:
    """The workload of a valid job."""
    return _Factory(job, settings).workload()


class _Factory(WorkloadFactory[PyTorchTrainingJobSpec]):
    @cached_property
    def specs(self) -> Mapping[str, PyTorchReplicaSpec]:
        """Replica specs by type, in the order of ranks."""
        return {spec.type: spec for spec in self.spec.by_rank}

    @cached_property
    def counts(self) -> dict[str, int]:
        total = self.elastic_total
        if total is None:
            return {name: spec.replicas for name, spec in self.specs.items()}
        shares = [Share(spec.replicas, spec.scaling_weight) for spec in self.specs.values()]
        return dict(zip(self.specs, allocate(total, shares), strict=True))

    @cached_property
    def types(self) -> tuple[ReplicaType, ...]:
        limit = self.spec.run_policy.backoff_limit
        return tuple(
            ReplicaType(
                name=name,
                replicas=self.counts[name],
                policy=spec.restart_policy,
                limit=limit,
                main_container=self.container(name),
                restarts_alone=self.is_mixed and self.scopes[name] is Scope.REPLICA,
            )
            for name, spec in self.specs.items()
        )

    @cached_property
    def scopes(self) -> dict[str, Scope]:
        """What restarts when a replica of a type fails (decision 117)."""
        overall = self.spec.run_policy.restart_scope or Scope.JOB
        return {name: Scope(spec.restart_scope or overall) for name, spec in self.specs.items()}

    @property
    def is_mixed(self) -> bool:
        """Whether some types restart together, and others replica by replica."""
        return len(set(self.scopes.values())) > 1

    def template(self, replica_type: str) -> Mapping[str, Any]:
        return self.specs[replica_type].template

    @cached_property
    def first_rank(self) -> dict[str, int]:
        ranks, next_rank = {}, 0
        for replica_type, count in self.counts.items():
            ranks[replica_type] = next_rank
            next_rank += count
        return ranks

    @cached_property
    def rendezvous_endpoint(self) -> Endpoint:
        return self.endpoint(self.rank0)

    @property
    def survivors_stay(self) -> bool:
        """Whether agents that live on take in those that come anew, as torchrun does where it
        may restart its workers (decision 24)."""
        config = self.spec.torchrun_config
        scope = self.spec.run_policy.restart_scope
        may_restart = self.elastic is not None or bool(config.max_restarts)
        return config.enabled and scope is None and may_restart

    def workload(self) -> Workload:
        found, spec = super().workload(), self.spec
        policy = SuccessPolicy(spec.run_policy.success_policy)
        board: tuple[Dependent, ...] = ()
        if spec.tensorboard_spec:
            board = (
                Dependent(
                    TENSOR_BOARDS, self.identity.base, self._tensorboard, status_field="tensorboard"
                ),
            )
        return replace(
            found,
            dependents=(*found.dependents, *board),
            scope=Scope.JOB if Scope.JOB in self.scopes.values() else Scope.REPLICA,
            survivors_stay=self.survivors_stay,
            success_policy=policy,
            restart_after_success=policy is not SuccessPolicy.ALL_REPLICAS,
            in_place=self.in_place,
            node_check=node_check_injection.checks_nodes(spec, self.settings),
            warnings=(
                *found.warnings,
                *node_check_injection.node_check_warnings(spec, self.settings),
            ),
        )

    def _tensorboard(self, name: str) -> Manifest:
        """The TensorBoard, kept when the job ends, and deleted with the job (decision 38)."""
        assert self.spec.tensorboard_spec is not None
        return {
            "apiVersion": TENSOR_BOARDS.api_version,
            "kind": TENSOR_BOARDS.kind,
            "metadata": self.identity.metadata(name),
            "spec": self.spec.tensorboard_spec.dump(),
        }

    @property
    def programs(self) -> Mapping[str, str]:
        return {
            **node_check_injection.programs_for(self.spec),
            **in_place_injection.programs_for(self.spec),
        }

    own_labels = labels.OF_RANK0

    def extra_labels(self, key: ReplicaKey) -> Mapping[str, str]:
        return {labels.JOB_ROLE: labels.MASTER_ROLE} if key == self.rank0 else {}

    @property
    def starts_ranks(self) -> bool:
        """Torchrun's agents do."""
        return self.spec.torchrun_config.enabled

    @property
    def in_place(self) -> int | None:
        """See `Workload.in_place`."""
        templates = (spec.template for spec in self.specs.values())
        return in_place_injection.in_place_grace_seconds(self.spec, self.settings, templates)

    def launch(self, pod: Manifest, key: ReplicaKey, start: ReplicaStart) -> None:
        container = self.container(key.type)
        self._launch(pod, key, start)
        self._put_event_folders(pod, container)
        mine = self.identity, self.settings, self.total
        target = command_wrapper.Target(pod, container, self.host(key), *mine)
        if self.in_place is not None:
            is_plain = not self.spec.torchrun_config.enabled
            preload = self.spec.run_policy.preload if is_plain else ()
            in_place_injection.inject_supervisor(target, preload)
        node_check_injection.inject_node_check(target, self.spec, joins=start.joins)

    def _put_event_folders(self, pod: Manifest, container: str) -> None:
        """Let the observer know where the training writes what its TensorBoard shows."""
        variables = pod_template_rules.container_of(pod, container).get("env") or ()
        is_observed = any(each["name"] == OBSERVE for each in variables)
        if self.spec.tensorboard_spec is None or not is_observed:
            return
        if folders := log_sources.mounted(self.spec.tensorboard_spec, pod["spec"], container):
            pod_assembly.put_env_first(
                pod, {observer_injection.EVENTS: ":".join(folders)}, only=container
            )

    def _launch(self, pod: Manifest, key: ReplicaKey, start: ReplicaStart) -> None:
        if not self.spec.torchrun_config.enabled:
            variables = self._plain_env(key, pod_assembly.attempt_of(pod))
            pod_assembly.put_env_first(pod, variables)
            super().launch(pod, key, start)
            return
        grace_seconds = pod["spec"].get("terminationGracePeriodSeconds")
        variables = torchrun_launch.shutdown_timeout_env(grace_seconds)
        if self.survivors_stay:
            variables |= torchrun_launch.REJOIN_ENV
        if variables:
            pod_assembly.put_env_first(pod, variables)
        if start.debug:
            pod_assembly.put_env_first(pod, self._master_env())
            super().launch(pod, key, start)
            return
        resume, name = start.resume, self.container(key.type)
        if resume and resume.skip_init_container:
            pod_assembly.remove_init_containers(pod)
        if resume and resume.command is not None:
            change = {"command": list(resume.command), "args": list(resume.args or ())}
        else:
            args = resume.args if resume else None
            script = self.training(key.type).get("args") or () if args is None else args
            command = torchrun_launch.command(elastic=self.elastic is not None)
            change = {"command": command, "args": self._torchrun_args(key, script)}
        pod_assembly.change_container(pod, name, **change)

    def replaced_commands(
        self, key: ReplicaKey, training: Manifest, debug: Manifest
    ) -> dict[str, str]:
        """Torchrun under its own name, and not by the script that finds it in any image."""
        name = self.container(key.type)
        found = pod_template_rules.container_of(training, name).get("command")
        if found == torchrun_launch.command(elastic=self.elastic is not None):
            pod_assembly.change_container(training, name, command=["torchrun"])
        return super().replaced_commands(key, training, debug)

    def _master_env(self) -> dict[str, str]:
        host, port = self.rendezvous_endpoint
        return {"MASTER_ADDR": host, "MASTER_PORT": str(port)}

    def _plain_env(self, key: ReplicaKey, attempt: int) -> dict[str, str]:
        return {
            **self._master_env(),
            "RANK": str(self.first_rank[key.type] + key.ordinal),
            "WORLD_SIZE": str(self.total),
            RESTART_COUNT: str(attempt - 1),
        }

    def _torchrun_args(self, key: ReplicaKey, script: Sequence[str]) -> list[str]:
        config, elastic = self.spec.torchrun_config, self.elastic
        processes = config.proc_per_node
        if processes == "gpu":  # torchrun's own `gpu` fails where torch finds none (decision 14)
            processes = str(gpu_count(self.training(key.type)) or 1)
        return torchrun_launch.Launch(
            nodes=f"{elastic.min_replicas}:{elastic.max_replicas}" if elastic else str(self.total),
            processes=processes,
            backend=config.rdzv_backend,
            endpoint="{}:{}".format(*self.rendezvous_endpoint),
            run_id=self.identity.base,
            role=key.type,
            max_restarts=config.max_restarts,
            elastic=elastic is not None,
            extra=config.extra_options,
            script=script,
        ).arguments()


class Share(NamedTuple):
    """A type's claim: its `replicas`, and its weight when the job changes its size."""

    replicas: int
    weight: int | None


def allocate(total: int, shares: Sequence[Share]) -> list[int]:
    """Replicas per type, in the order given (the first holds rank 0 and never gets less than 1).

    One type takes all. Types without a weight keep their `replicas`; the others share the rest by
    largest remainder, ties in list order. Without any weight above 0, `replicas` are the weights.
    """
    if len(shares) == 1:
        return [max(total, 1)]
    if not any(share.weight for share in shares):
        shares = [Share(share.replicas, share.replicas) for share in shares]
    fixed = [share.replicas if share.weight is None else 0 for share in shares]
    if sum(fixed) > total:
        fixed = _trim(fixed, total)
    portions = _largest_remainder(total - sum(fixed), [share.weight or 0 for share in shares])
    counts = [a + b for a, b in zip(fixed, portions, strict=True)]
    if counts[0] == 0:
        counts[0] = 1
        if sum(counts) > total:
            counts[counts.index(max(counts[1:]), 1)] -= 1
    return counts


def _trim(counts: list[int], total: int) -> list[int]:
    """Cut from the end, so that the highest ranks go (decision 30)."""
    kept = []
    for count in counts:
        kept.append(min(count, total))
        total -= kept[-1]
    return kept


def _largest_remainder(total: int, weights: Sequence[int]) -> list[int]:
    whole = sum(weights)
    if whole == 0:
        return [0] * len(weights)
    counts = [total * weight // whole for weight in weights]
    remainders = [total * weight % whole for weight in weights]
    order = sorted(range(len(weights)), key=lambda i: (-remainders[i], i))
    for i in order[: total - sum(counts)]:
        counts[i] += 1
    return counts
