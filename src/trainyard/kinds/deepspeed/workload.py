"""DeepSpeedJob: every worker serves ssh, and worker-0 also runs ``deepspeed`` over all of them.

The launch itself, its environment, arguments and exit codes are the business of the programs in
``launch/``; here is decided what they are told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainyard.kinds.deepspeed.spec import (
    REPLICA_TYPE,
    DeepSpeedConfig,
    DeepSpeedJob,
    DeepSpeedJobSpec,
)
from trainyard.kinds.shared import labels, modes, names, network, pods, services, ssh
from trainyard.kinds.shared.digest import spec_hash
from trainyard.kinds.shared.gang import Gang, Membership, gang_of
from trainyard.kinds.shared.identity import Identity
from trainyard.kinds.shared.run import ReplicaDebugSet, ResumeSpec
from trainyard.kinds.shared.settings import GangBackend, Settings
from trainyard.kinds.shared.workload import (
    CleanUpPolicy,
    Elastic,
    Manifest,
    ReplicaKey,
    ReplicaType,
    RestartPolicy,
    Scope,
    Workload,
)
from trainyard.schema import quantity

WORKER_0 = ReplicaKey(REPLICA_TYPE, 0)
MASTER = "master"
DEBUG_COMMAND = (ssh.SSHD_PATH, "-D")
"""Annotation: a pod whose value differs from `Workload.revision` is replaced."""


def describe(job: DeepSpeedJob, settings: Settings) -> Workload:
    """The workload of a valid job."""
    return _Description(job, settings).workload()


def entry_for(key: ReplicaKey, entries: Sequence[ReplicaDebugSet | ResumeSpec]) -> str:
    """The replica type whose entry holds: old manifests name worker-0 ``master``."""
    is_named = any(entry.type == MASTER for entry in entries)
    return MASTER if key == WORKER_0 and is_named else key.type


@dataclass(frozen=True)
class _Description:
    job: DeepSpeedJob
    settings: Settings

    @property
    def spec(self) -> DeepSpeedJobSpec:
        return self.job.spec

    @cached_property
    def config(self) -> DeepSpeedConfig:
        return self.spec.config or DeepSpeedConfig()

    @cached_property
    def identity(self) -> Identity:
        return Identity.of(self.job)

    @cached_property
    def container(self) -> str:
        return pods.container_name(self.spec.worker.template, (REPLICA_TYPE,))

    @cached_property
    def elastic(self) -> Elastic | None:
        bounds = self.spec.elastic_range
        return Elastic(max(bounds.minimum, 1), max(bounds.maximum, 1)) if bounds else None

    @cached_property
    def replicas(self) -> int:
        """Workers wanted now; an elastic target out of its bounds is taken to the nearest one."""
        bounds = self.spec.elastic_range
        if bounds is None or self.elastic is None:
            return self.spec.worker.replicas
        return min(max(bounds.expected, self.elastic.min_replicas), self.elastic.max_replicas)

    @cached_property
    def slots(self) -> int:
        """Processes per worker: as given, else the GPUs of the training container, else 1."""
        return self.config.slots_per_worker or self._gpus() or 1

    def _gpus(self) -> int:
        trains = ssh.container_of(self.spec.worker.template, self.container)
        resources = trains.get("resources") or {}
        wanted = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        return sum(quantity.parse_int(n) for name, n in wanted.items() if name.endswith("/gpu"))

    @cached_property
    def hosts(self) -> list[str]:
        keys = (ReplicaKey(REPLICA_TYPE, index) for index in range(self.replicas))
        return [network.host_of(self.pod_name(key), self.settings) for key in keys]

    @cached_property
    def hostfile(self) -> str:
        return "".join(f"{host} slots={self.slots}\n" for host in self.hosts)

    @cached_property
    def gang(self) -> Gang | None:
        return gang_of(
            self.identity,
            self.settings.gang_backend,
            self.spec.scheduler,
            total=self.replicas,
            min_member=self.elastic.min_replicas if self.elastic else None,
        )

    def pod_name(self, key: ReplicaKey) -> str:
        return names.pod_name(self.identity.base, key.type, key.ordinal)

    def workload(self) -> Workload:
        spec, policy = self.spec, self.spec.run_policy
        worker = ReplicaType(
            name=REPLICA_TYPE,
            replicas=self.replicas,
            policy=RestartPolicy(spec.worker.restart_policy),
            limit=policy.backoff_limit,
            main_container=self.container,
        )
        return Workload(
            kind=self.job.kind,
            api_version=self.job.api_version,
            resource=self.identity.resource,
            namespace=self.identity.namespace,
            name=self.identity.name,
            uid=self.identity.uid,
            generation=self.job.metadata.generation,
            base=self.identity.base,
            types=(worker,),
            pod_name=self.pod_name,
            build_pod=self.build_pod,
            dependents=(
                services.headless(self.identity),
                *ssh.dependents(self.identity, self.hostfile, self.settings.ssh_port),
                *(self.gang.dependents() if self.gang else ()),
            ),
            decides=WORKER_0,
            scope=Scope.REPLICA if policy.restart_scope == "Replica" else Scope.JOB,
            survivors_stay=self.elastic is not None and policy.restart_scope is None,
            restart_after_success=False,
            clean_up=CleanUpPolicy(policy.clean_up_policy),
            active_deadline_seconds=policy.active_deadline_seconds,
            ttl_seconds_after_finished=policy.ttl_seconds_after_finished,
            paused=spec.run_mode.pause.enabled,
            debug=spec.run_mode.debug.enabled,
            elastic=self.elastic,
            needs_gang=bool(self.gang and self.gang.backend is GangBackend.NONE),
            spec_hash=spec_hash(self.job),
            revision=self.revision,
        )

    def revision(self, key: ReplicaKey) -> str:
        """A resize replaces worker-0 alone: it carries the hostfile."""
        return str(self.replicas) if self.elastic and key == WORKER_0 else ""

    def build_pod(
        self, key: ReplicaKey, attempt: int, *, pod_group: str, resumed: bool
    ) -> Manifest:
        """The pod of one worker; see `workload.PodBuilder`."""
        pod = pods.assemble(
            self.identity,
            key,
            self.pod_name(key),
            self.spec.worker.template,
            self.settings,
            attempt=attempt,
            membership=self.gang.membership(key.type, pod_group) if self.gang else Membership(),
            extra_labels={labels.JOB_ROLE: labels.MASTER_ROLE} if key == WORKER_0 else None,
        )
        if revision := self.revision(key):
            pod["metadata"]["annotations"][labels.REVISION] = revision
        mode = self.spec.run_mode
        resume = modes.resume_spec(mode, entry_for(key, mode.pause.resume_specs))
        resume = resume if resumed else None
        if resume and resume.skip_init_container:
            modes.skip_init(pod)
        ssh.equip(pod, self._node(pod, key, resume))
        return pod

    def _node(self, pod: Manifest, key: ReplicaKey, resume: ResumeSpec | None) -> ssh.Node:
        leads = key == WORKER_0
        mode = self.spec.run_mode
        debug = modes.debug_set(mode, entry_for(key, mode.debug.replica_specs))
        if debug:
            modes.idle(pod, self.container, debug)
        return ssh.Node(
            identity=self.identity,
            container=self.container,
            port=self.settings.ssh_port,
            hosts=self.hosts,
            launch=self._launch(resume) if leads and not debug else None,
            hostfile=self.hostfile if leads else None,
            disable_custom_env=self.spec.disable_custom_env,
            elastic=self._elastic() if self.elastic else None,
            workers_stay=self.elastic is not None or self.spec.run_policy.restart_scope is not None,
            debug=(debug.command or DEBUG_COMMAND) if debug else None,
        )

    def _elastic(self) -> Mapping[str, Any]:
        assert self.elastic is not None
        return {
            "min": self.elastic.min_replicas,
            "settleSeconds": self.settings.elastic_settle_seconds,
        }

    def _launch(self, resume: ResumeSpec | None) -> Mapping[str, Any]:
        """What worker-0 is told to run; `programs.py` reads it."""
        config = self.config
        if resume and resume.command is not None:
            argv = [*resume.command, *(resume.args or ())]
            return {"kind": "command", "argv": argv, "slots": self.slots}
        if config.custom_command:
            argv = ["/bin/sh", "-c", config.custom_command]
            return {"kind": "command", "argv": argv, "slots": self.slots}
        form, program = self._program()
        if resume and resume.args is not None:
            program = [program[0], *resume.args]
        launch: dict[str, Any] = {
            "kind": "deepspeed",
            "form": form,
            "program": program,
            "slots": self.slots,
            "localRank": config.local_rank,
            "otherArgs": list(config.other_args),
        }
        if config.autotune != "none":
            launch["autotune"] = config.autotune
        if self.settings.plain_processes:
            port = network.endpoint(self.pod_name(WORKER_0), self.identity.uid, self.settings).port
            launch["masterPort"] = port
        return launch

    def _program(self) -> tuple[str, list[str]]:
        """`python`, `module` or `exec`, and the program with its arguments."""
        run = self.config.run
        forms = {"python": run.python, "module": run.module, "exec": run.exec}
        return next((form, list(program)) for form, program in forms.items() if program)
