"""ColossalAIJob: workers serve ssh, and a launcher pod runs ``colossalai run`` over them.

The launcher does not train. The launch itself is the business of the programs in ``launch/``; here
is decided what they are told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainyard.kinds.colossalai.spec import (
    LAUNCHER,
    WORKER,
    ColossalAIJob,
    ColossalAIJobSpec,
    ColossalReplicaSpec,
)
from trainyard.kinds.shared import modes, names, network, pods, services, ssh
from trainyard.kinds.shared.digest import spec_hash
from trainyard.kinds.shared.gang import Gang, Membership, gang_of
from trainyard.kinds.shared.identity import Identity
from trainyard.kinds.shared.run import ResumeSpec
from trainyard.kinds.shared.settings import GangBackend, Settings
from trainyard.kinds.shared.workload import (
    CleanUpPolicy,
    Manifest,
    ReplicaKey,
    ReplicaType,
    RestartPolicy,
    Workload,
)

THE_LAUNCHER = ReplicaKey(LAUNCHER, 0)
COPIED_TO_CONTAINER = ("image", "imagePullPolicy", "workingDir", "env", "envFrom")
COPIED_TO_POD = ("imagePullSecrets", "securityContext")
SHELL_CHARACTERS = set(" \t\n\"'\\$`;&|<>()*?[]#~!{}")


def describe(job: ColossalAIJob, settings: Settings) -> Workload:
    """The workload of a valid job."""
    return _Description(job, settings).workload()


def extra_launch_args(options: tuple[str, ...]) -> list[str]:
    """torchrun options as ``colossalai run --extra_launch_args`` wants them.

    ``--max_restarts=3`` and ``--max_restarts 3`` become ``max_restarts=3``; ``--no_python`` becomes
    ``no_python``.
    """
    found: list[str] = []
    for option in options:
        if option.startswith("-") or not found or "=" in found[-1]:
            found.append(option.lstrip("-"))
        else:
            found[-1] += f"={option}"
    return found


def shell_warning(script: tuple[str, ...]) -> str:
    """A warning for arguments that the workers' shell will change; empty if there are none."""
    changed = [argument for argument in script if SHELL_CHARACTERS & set(argument)]
    if not changed:
        return ""
    return (
        f"spec.torchConfig.script: {changed[0]!r} passes through the workers' shell, because "
        "`colossalai run` does not quote it; quote it for a shell if it must arrive as it is"
    )


@dataclass(frozen=True)
class _Description:
    job: ColossalAIJob
    settings: Settings

    @property
    def spec(self) -> ColossalAIJobSpec:
        return self.job.spec

    @cached_property
    def identity(self) -> Identity:
        return Identity.of(self.job)

    @cached_property
    def worker(self) -> ColossalReplicaSpec:
        return self.spec.replica(WORKER) or ColossalReplicaSpec(type=WORKER)

    @cached_property
    def launcher(self) -> ColossalReplicaSpec:
        return self.spec.replica(LAUNCHER) or ColossalReplicaSpec(type=LAUNCHER)

    @cached_property
    def launcher_template(self) -> Mapping[str, Any]:
        """The launcher's template; without a container it gets one like the worker's, no GPU."""
        template = self.launcher.template
        pod = template.get("spec") or {}
        if pod.get("containers"):
            return template
        theirs = self.worker.template.get("spec") or {}
        model = ssh.container_of(self.worker.template, self._container(WORKER))
        wanted = (*COPIED_TO_CONTAINER, "securityContext")
        container = {"name": LAUNCHER, **{k: model[k] for k in wanted if k in model}}
        copied = {k: theirs[k] for k in COPIED_TO_POD if k in theirs}
        return {**template, "spec": {**copied, **pod, "containers": [container]}}

    def _template(self, replica_type: str) -> Mapping[str, Any]:
        return self.launcher_template if replica_type == LAUNCHER else self.worker.template

    def _container(self, replica_type: str) -> str:
        return pods.container_name(self._template(replica_type), (replica_type,))

    @cached_property
    def hosts(self) -> list[str]:
        keys = (ReplicaKey(WORKER, index) for index in range(self.worker.replicas))
        return [network.host_of(self.pod_name(key), self.settings) for key in keys]

    @cached_property
    def hostfile(self) -> str:
        """Bare names: ``colossalai run`` takes ``slots=`` for a part of the name."""
        return "".join(f"{host}\n" for host in self.hosts)

    @cached_property
    def gang(self) -> Gang | None:
        return gang_of(
            self.identity,
            self.settings.gang_backend,
            self.spec.scheduler,
            total=1 + self.worker.replicas,
        )

    def pod_name(self, key: ReplicaKey) -> str:
        if key.type == LAUNCHER:
            return names.launcher_name(self.identity.base)
        return names.pod_name(self.identity.base, key.type, key.ordinal)

    def _type(self, spec: ColossalReplicaSpec, limit: int) -> ReplicaType:
        return ReplicaType(
            name=spec.type,
            replicas=1 if spec.type == LAUNCHER else spec.replicas,
            policy=RestartPolicy(spec.restart_policy.policy),
            limit=limit,
            main_container=self._container(spec.type),
            is_launcher=spec.type == LAUNCHER,
        )

    def workload(self) -> Workload:
        mode = self.spec.run_mode
        # All replicas start again together, so one budget counts, whichever of them carries it.
        limit = max(self.launcher.restart_policy.limit, self.worker.restart_policy.limit)
        cleans = self.spec.run_policy.clean_up_workers
        warning = shell_warning(self.spec.torch_config.script)
        return Workload(
            kind=self.job.kind,
            api_version=self.job.api_version,
            resource=self.identity.resource,
            namespace=self.identity.namespace,
            name=self.identity.name,
            uid=self.identity.uid,
            generation=self.job.metadata.generation,
            base=self.identity.base,
            types=(self._type(self.launcher, limit), self._type(self.worker, limit)),
            pod_name=self.pod_name,
            build_pod=self.build_pod,
            dependents=(
                services.headless(self.identity),
                *ssh.dependents(self.identity, self.hostfile, self.settings.ssh_port),
                *(self.gang.dependents() if self.gang else ()),
            ),
            decides=THE_LAUNCHER,
            restart_after_success=False,
            counts_backoff=False,
            tells_all=True,
            clean_up=CleanUpPolicy.WORKERS if cleans else CleanUpPolicy.NONE,
            paused=mode.pause.enabled,
            debug=mode.debug.enabled,
            needs_gang=bool(self.gang and self.gang.backend is GangBackend.NONE),
            warnings=(warning,) if warning else (),
            spec_hash=spec_hash(self.job),
        )

    def build_pod(
        self, key: ReplicaKey, attempt: int, *, pod_group: str, resumed: bool
    ) -> Manifest:
        """The pod of the launcher or a worker; see `workload.PodBuilder`."""
        pod = pods.assemble(
            self.identity,
            key,
            self.pod_name(key),
            self._template(key.type),
            self.settings,
            attempt=attempt,
            membership=self.gang.membership(key.type, pod_group) if self.gang else Membership(),
        )
        resume = modes.resume_spec(self.spec.run_mode, key.type) if resumed else None
        if resume and resume.skip_init_container:
            modes.skip_init(pod)
        ssh.equip(pod, self._node(pod, key, resume))
        return pod

    def _node(self, pod: Manifest, key: ReplicaKey, resume: ResumeSpec | None) -> ssh.Node:
        leads = key == THE_LAUNCHER
        container = self._container(key.type)
        debug = modes.debug_set(self.spec.run_mode, key.type)
        if debug:
            modes.idle(pod, container, debug)
        return ssh.Node(
            identity=self.identity,
            container=container,
            port=self.settings.ssh_port,
            hosts=self.hosts,
            sshd=self.spec.ssh.sshd_path,
            auth_path=self.spec.ssh.auth_mount_path,
            launch=self._launch(resume) if leads and not debug else None,
            hostfile=self.hostfile if leads else None,
            report_sessions=True,
            debug=(debug.command or modes.IDLE) if debug else None,
        )

    def _launch(self, resume: ResumeSpec | None) -> Mapping[str, Any]:
        """What the launcher is told to run; `programs.py` reads it."""
        torch = self.spec.torch_config
        if resume and resume.command is not None:
            return {"kind": "command", "argv": [*resume.command, *(resume.args or ())]}
        program = list(torch.script)
        if resume and resume.args is not None:
            program = [*program[: 2 if program[:1] == ["-m"] else 1], *resume.args]
        launch: dict[str, Any] = {
            "kind": "colossalai",
            "program": program,
            "processes": torch.proc_per_worker,
            "extraArgs": extra_launch_args(torch.extra_args),
        }
        if self.settings.plain_processes:
            first = self.pod_name(ReplicaKey(WORKER, 0))
            launch["masterPort"] = network.endpoint(first, self.identity.uid, self.settings).port
        return launch
