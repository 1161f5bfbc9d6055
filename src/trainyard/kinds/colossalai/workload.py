"""ColossalAIJob: workers serve ssh, and a launcher pod runs ``colossalai run`` over them.

The launcher does not train. The programs in ``payloads/launch`` do the launch; this module makes
their input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

from trainyard.kinds.colossalai.default_launcher import default_launcher
from trainyard.kinds.colossalai.spec import (
    LAUNCHER,
    ColossalAIJob,
    ColossalAIJobSpec,
    ColossalReplicaSpec,
)
from trainyard.kinds.shared import child_names
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.launch.ssh_workload import SshPod, SshWorkloadFactory
from trainyard.kinds.shared.pods import pod_assembly, pod_template_rules
from trainyard.kinds.shared.run_policy import HOSTFILE_PATH, WORKER, ResumeSpec
from trainyard.kinds.shared.workload import (
    CleanUpPolicy,
    ReplicaKey,
    ReplicaType,
    RestartPolicy,
    Workload,
)
from trainyard.kinds.shared.workload_factory import ReplicaStart
from trainyard.payloads.launch.hostfile import address
from trainyard.payloads.payload_messages import ColossalAILaunch, LaunchLine


def describe(job: ColossalAIJob, settings: Settings) -> Workload:
    """The workload of a valid job."""
    return _Factory(job, settings).workload()


def extra_launch_args(options: tuple[str, ...]) -> list[str]:
    """torchrun options as ``colossalai run --extra_launch_args`` wants them (decision 16).

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


class _Factory(SshWorkloadFactory[ColossalAIJobSpec]):
    @cached_property
    def worker(self) -> ColossalReplicaSpec:
        return self.spec.replica(WORKER) or ColossalReplicaSpec(type=WORKER)

    @cached_property
    def launcher(self) -> ColossalReplicaSpec:
        return self.spec.replica(LAUNCHER) or ColossalReplicaSpec(type=LAUNCHER)

    @cached_property
    def types(self) -> tuple[ReplicaType, ...]:
        return self._type(self.launcher), self._type(self.worker)

    def _type(self, spec: ColossalReplicaSpec) -> ReplicaType:
        # Decision 32: all start again together, so one budget counts, whichever of them carries it.
        limit = max(self.launcher.restart_policy.limit, self.worker.restart_policy.limit)
        return ReplicaType(
            name=spec.type,
            replicas=1 if spec.type == LAUNCHER else spec.replicas,
            policy=RestartPolicy(spec.restart_policy.policy),
            limit=limit,
            main_container=self.container(spec.type),
            is_launcher=spec.type == LAUNCHER,
        )

    def template(self, replica_type: str) -> Mapping[str, Any]:
        return self.launcher_template if replica_type == LAUNCHER else self.worker.template

    @cached_property
    def launcher_template(self) -> Mapping[str, Any]:
        """The launcher's template, or the default without a container (decision 7)."""
        own = self.launcher.template
        if pod_template_rules.containers(own):
            return own
        return default_launcher(own, self.worker.template, self.training(WORKER))

    @cached_property
    def hostfile(self) -> str:
        """Bare names: ``colossalai run`` takes ``slots=`` for a part of the name (decision 16).
        It looks them up itself: they are addresses where pods have no names."""
        by_name = not self.settings.plain_processes
        hosts = self.hosts if by_name else [self.places["addresses"][host] for host in self.hosts]
        return "".join(f"{host}\n" for host in hosts)

    def pod_name(self, key: ReplicaKey) -> str:
        if key.type == LAUNCHER:
            return child_names.launcher_name(self.identity.base)
        return super().pod_name(key)

    def host_name(self, key: ReplicaKey) -> str:
        return LAUNCHER if key.type == LAUNCHER else super().host_name(key)

    def workload(self) -> Workload:
        cleans = self.spec.run_policy.clean_up_workers
        return replace(
            super().workload(),
            restart_after_success=False,
            failure_condition_reports_success=True,
            clean_up=CleanUpPolicy.WORKERS if cleans else CleanUpPolicy.NONE,
        )

    def ssh_pod(self, key: ReplicaKey, start: ReplicaStart) -> SshPod:
        leads, debug = key.type == LAUNCHER, start.debug
        # A job in debug mode need not say what it will launch.
        has_launch = bool(self.spec.torch_config.script or self.command(start.resume))
        return SshPod(
            identity=self.identity,
            container=self.container(key.type),
            port=self.settings.ssh_port,
            probe_seconds=self.settings.launch_probe_seconds,
            hosts=self.hosts,
            places=self.places,
            sshd=self.spec.ssh.sshd_path,
            auth_path=self.spec.ssh.auth_mount_path,
            launch=self._launch(start.resume) if leads and has_launch and not debug else None,
            hostfile=self.hostfile if leads else None,
            report_sessions=True,
            debug=(debug.command or pod_assembly.IDLE) if debug else None,
        )

    def typed_command_line(self, launch: LaunchLine) -> list[str]:
        line = cast("ColossalAILaunch", launch)
        words = ["colossalai", "run", "--nproc_per_node", str(line["processes"])]
        words += ["--master_addr", address(self.places, self.hosts[0])]
        words += ["--hostfile", HOSTFILE_PATH]
        if "masterPort" in line:
            words += ["--master_port", str(line["masterPort"])]
        if line.get("extraArgs"):
            words += ["--extra_launch_args", ",".join(line["extraArgs"])]
        program = line["program"]
        tail = ["-m", program[1], "--", *program[2:]] if program[0] == "-m" else ["--", *program]
        return [*words, *tail]

    def _launch(self, resume: ResumeSpec | None) -> LaunchLine:
        """What the launcher runs; `payloads/launch` reads it."""
        if (argv := self.command(resume)) is not None:
            return {"kind": "command", "argv": argv}
        torch = self.spec.torch_config
        program = list(torch.script)
        if resume and resume.args is not None:
            program = [*program[: 2 if program[:1] == ["-m"] else 1], *resume.args]
        return {
            "kind": "colossalai",
            "program": program,
            "processes": torch.proc_per_worker,
            "extraArgs": extra_launch_args(torch.extra_args),
            **self.master_port(),
        }
