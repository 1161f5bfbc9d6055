"""DeepSpeedJob: every worker serves ssh, and worker-0 also runs ``deepspeed`` over all of them.

The programs in ``payloads/launch`` do the launch; this module makes their input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

from trainyard.kinds.deepspeed.spec import (
    LEGACY_MASTER,
    DeepSpeedConfig,
    DeepSpeedJob,
    DeepSpeedJobSpec,
)
from trainyard.kinds.shared import labels
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.launch.ssh_workload import SshPod, SshWorkloadFactory
from trainyard.kinds.shared.pods.pod_template_rules import gpu_count
from trainyard.kinds.shared.run_policy import (
    HOSTFILE_PATH,
    SSHD_PATH,
    WORKER,
    ModeEntry,
    ResumeSpec,
)
from trainyard.kinds.shared.workload import ReplicaKey, ReplicaType, Workload
from trainyard.kinds.shared.workload_factory import ReplicaStart
from trainyard.payloads.launch.hostfile import address
from trainyard.payloads.payload_messages import DeepSpeedLaunch, Elastic, LaunchLine, Tuning

WORKER_0 = ReplicaKey(WORKER, 0)
DEBUG_COMMAND = (SSHD_PATH, "-D")


def describe(job: DeepSpeedJob, settings: Settings) -> Workload:
    """The workload of a valid job."""
    return _Factory(job, settings).workload()


class _Factory(SshWorkloadFactory[DeepSpeedJobSpec]):
    @cached_property
    def config(self) -> DeepSpeedConfig:
        return self.spec.config or DeepSpeedConfig()

    @cached_property
    def types(self) -> tuple[ReplicaType, ...]:
        worker, total = self.spec.worker, self.elastic_total
        return (
            ReplicaType(
                name=WORKER,
                replicas=worker.replicas if total is None else total,
                policy=worker.restart_policy,
                limit=self.spec.run_policy.backoff_limit,
                main_container=self.container(WORKER),
            ),
        )

    def template(self, replica_type: str) -> Mapping[str, Any]:
        return self.spec.worker.template

    @property
    def deciding_replica(self) -> ReplicaKey:
        return WORKER_0

    @cached_property
    def slots(self) -> int:
        """Processes per worker: as given, else the GPUs of the training container, else 1."""
        return self.config.slots_per_worker or gpu_count(self.training(WORKER)) or 1

    @cached_property
    def hostfile(self) -> str:
        return "".join(f"{host} slots={self.slots}\n" for host in self.hosts)

    def workload(self) -> Workload:
        return replace(
            super().workload(),
            survivors_stay=self.elastic is not None and self.spec.run_policy.restart_scope is None,
            restart_after_success=False,
        )

    def revision(self, key: ReplicaKey) -> str:
        """A resize replaces worker-0 alone: it carries the hostfile (decision 15)."""
        return str(self.total) if self.elastic and key == WORKER_0 else ""

    own_labels = labels.OF_RANK0

    def extra_labels(self, key: ReplicaKey) -> Mapping[str, str]:
        return {labels.JOB_ROLE: labels.MASTER_ROLE} if key == WORKER_0 else {}

    def run_mode_type(self, key: ReplicaKey, entries: Sequence[ModeEntry]) -> str:
        is_named = any(entry.type == LEGACY_MASTER for entry in entries)
        return LEGACY_MASTER if key == WORKER_0 and is_named else key.type

    def ssh_pod(self, key: ReplicaKey, start: ReplicaStart) -> SshPod:
        leads, debug = key == WORKER_0, start.debug
        launches = leads and not debug and self._has_launch(start.resume)
        return SshPod(
            identity=self.identity,
            container=self.container(key.type),
            port=self.settings.ssh_port,
            probe_seconds=self.settings.launch_probe_seconds,
            hosts=self.hosts,
            places=self.places,
            launch=self._launch(start.resume) if launches else None,
            hostfile=self.hostfile if leads else None,
            disable_custom_env=self.spec.disable_custom_env,
            elastic=self._elastic() if self.elastic else None,
            joins=self.elastic is not None and start.joins,
            workers_stay=self.elastic is not None or self.spec.run_policy.restart_scope is not None,
            debug=(debug.command or DEBUG_COMMAND) if debug else None,
        )

    def typed_command_line(self, launch: LaunchLine) -> list[str]:
        line = cast("DeepSpeedLaunch", launch)
        words = ["deepspeed", "--hostfile", HOSTFILE_PATH]
        words += ["--master_addr", address(self.places, self.hosts[0])]
        if "masterPort" in line:
            words += ["--master_port", str(line["masterPort"])]
        if not line.get("localRank", True):
            words.append("--no_local_rank")
        if line.get("autotune"):
            words += ["--autotuning", line["autotune"]]
        options = {"python": [], "module": ["--module"], "exec": ["--no_python"]}[line["form"]]
        return [*words, *line.get("otherArgs", []), *options, *line["program"]]

    def _elastic(self) -> Elastic:
        assert self.elastic is not None
        return {
            "min": self.elastic.min_replicas,
            "settleSeconds": self.settings.elastic_settle_seconds,
        }

    def _launch(self, resume: ResumeSpec | None) -> LaunchLine:
        """What worker-0 runs; `payloads/launch` reads it."""
        config, argv = self.config, self.command(resume)
        # A pause may resume with another command, which replaces the script (decision 15).
        if argv is None and (script := config.custom_command):
            return {"kind": "command", "argv": ["/bin/sh"], "script": script, "slots": self.slots}
        if argv is not None:
            return {"kind": "command", "argv": argv, "slots": self.slots}
        form, program = self._program()
        if resume and resume.args is not None:
            program = [program[0], *resume.args]
        tuning: Tuning = {"autotune": config.autotune} if config.autotune != "none" else {}
        return {
            "kind": "deepspeed",
            "form": form,
            "program": program,
            "slots": self.slots,
            "localRank": config.local_rank,
            "otherArgs": list(config.other_args),
            **tuning,
            **self.master_port(),
        }

    def _has_launch(self, resume: ResumeSpec | None) -> bool:
        """A job in debug mode need not say what it will launch."""
        run, custom = self.config.run, self.config.custom_command
        return any((run.python, run.module, run.exec, custom, self.command(resume)))

    def _program(self) -> tuple[str, list[str]]:
        """`python`, `module` or `exec`, and the program with its arguments."""
        run = self.config.run
        forms = {"python": run.python, "module": run.module, "exec": run.exec}
        return next((form, list(program)) for form, program in forms.items() if program)
