"""Rules of ColossalAIJob."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.kinds.colossalai import KIND
from trainyard.kinds.colossalai.spec import LAUNCHER, ColossalAIJob, ColossalAIJobSpec
from trainyard.kinds.shared import job_rules, process_rules
from trainyard.kinds.shared.failure_policy.failure_policy_rules import check_failure_policy
from trainyard.kinds.shared.launch import torchrun_options
from trainyard.kinds.shared.pods import pod_template_rules
from trainyard.kinds.shared.pods.template_overrides import check_overridden
from trainyard.kinds.shared.run_policy import HOSTFILE_PATH, WORKER
from trainyard.schema.problems import Path, Problem, error, suggest, warning

_SHELL = re.compile(r"[\s;&|<>$`\\\"'*?()\[\]{}!#~]")
_REPLICAS: Path = ("spec", "replicaSpecs")

_BY = {
    WORKER: "the container runs sshd, and torchConfig.script is launched over it",
    LAUNCHER: "the launcher runs torchConfig.script on the workers",
}
_ADDRESS = "is the address of worker-0"
_GENERATED = {
    "nproc_per_node": "torchConfig.procPerWorker sets",
    "nnodes": "is the number of workers",
    "node_rank": "is the number of the worker",
    "master_addr": _ADDRESS,
    "rdzv_backend": "`colossalai run` does without",
    "rdzv_endpoint": _ADDRESS,
}
_REMARKS = {"standalone": "makes each worker train by itself"}

CEL = {
    (): {
        "rule": "has(self.replicaSpecs) || has(self.worker)",
        "message": "replicaSpecs is required",
    },
}
"""What a server can check without us; ``worker`` is the old layout."""


def check(job: ColossalAIJob) -> list[Problem]:
    """Every problem that the schema does not show."""
    spec = job.spec
    types = [replica.type for replica in spec.replica_specs]
    sizes = [(r.type, r.replicas) for r in spec.replica_specs if r.type == WORKER]
    problems = [
        *job_rules.check_name(job.metadata, sizes),
        *job_rules.check_types(types, _REPLICAS),
        *job_rules.check_run_mode(spec.run_mode, types, [LAUNCHER]),
        *_replicas(spec, job.metadata.annotations),
        *_script(spec),
        *job_rules.check_hang(spec.run_policy.observe, spec.run_policy.model_fields_set),
        *_resumed(spec),
        *check_failure_policy(spec.run_policy.pod_failure_policy, _templates(spec)),
        *_options(spec),
    ]
    for name, value in (
        ("sshdPath", spec.ssh.sshd_path),
        ("authMountPath", spec.ssh.auth_mount_path),
    ):
        if not value.startswith("/"):
            problems.append(error(("spec", "ssh", name), f"must be absolute, is '{value[:80]}'"))
    return problems


def _templates(spec: ColossalAIJobSpec) -> dict[str, Mapping[str, Any]]:
    """Pod templates by type, with the container that a launcher without any gets."""
    supplied = {"spec": {"containers": [{"name": LAUNCHER}]}}
    launcher = spec.replica(LAUNCHER)
    own = (
        launcher.template
        if launcher and pod_template_rules.containers(launcher.template)
        else supplied
    )
    worker = spec.replica(WORKER)
    return {LAUNCHER: own, WORKER: worker.template if worker else {}}


def _replicas(spec: ColossalAIJobSpec, given: Mapping[str, str]) -> Iterator[Problem]:
    for index, replica in enumerate(spec.replica_specs):
        here = (*_REPLICAS, index)
        if replica.type not in (LAUNCHER, WORKER):
            message = f"must be launcher or worker, not '{replica.type[:63]}'"
            yield error((*here, "type"), message, suggest(replica.type, (LAUNCHER, WORKER)))
            continue
        is_worker = replica.type == WORKER
        reserved = (spec.ssh.auth_mount_path.rstrip("/"), HOSTFILE_PATH)
        yield from pod_template_rules.check_mounts(replica.template, reserved, (*here, "template"))
        yield from pod_template_rules.check_template(
            replica.template, (*here, "template"), needs_container=is_worker
        )
        yield from check_overridden(
            replica.template,
            (*here, "template"),
            policy=replica.restart_policy.policy,
            given=given,
        )
        yield from process_rules.check_references(
            replica.template, (*here, "template"), (), process_rules.SET_BY_LAUNCHER
        )
        yield from job_rules.check_limit(
            replica.restart_policy, spec.run_policy.pod_failure_policy, here
        )
        yield from job_rules.check_launched(
            replica.template, KIND, replica.type, (*here, "template"), by=_BY[replica.type]
        )
        if is_worker:
            yield from job_rules.check_rank0(replica.replicas, here)
            yield from _processes(spec, replica.template, (*here, "template"))
            found = [
                container["name"] for container in pod_template_rules.containers(replica.template)
            ]
            if found and WORKER not in found:
                path = (*here, "template", "spec", "containers")
                yield error(path, "needs a container named 'worker'", suggest(WORKER, found))
        elif replica.replicas != 1:
            message = f"there is exactly one launcher, not {replica.replicas}"
            yield error((*here, "replicas"), message)
    types = {replica.type for replica in spec.replica_specs}
    if types and types <= {LAUNCHER}:
        yield error(_REPLICAS, "needs a replica type 'worker'")


def _processes(
    spec: ColossalAIJobSpec, template: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    if found := pod_template_rules.trainer(template, KIND, WORKER):
        yield from process_rules.check_processes(
            spec.torch_config.proc_per_worker,
            "torchConfig.procPerWorker",
            (*path, "spec", "containers", found[0], "resources"),
            found[1],
            is_given="proc_per_worker" in spec.torch_config.model_fields_set,
        )


def _resumed(spec: ColossalAIJobSpec) -> Iterator[Problem]:
    for index, entry in enumerate(spec.run_mode.pause.resume_specs):
        for field, value in (("command", entry.command), ("args", entry.args)):
            if entry.type == WORKER and value:
                path: Path = ("spec", "runMode", "pause", "resumeSpecs", index, field)
                yield job_rules.ignored(path, "workers run sshd; give it for the launcher")


def _options(spec: ColossalAIJobSpec) -> Iterator[Problem]:
    path: Path = ("spec", "torchConfig", "extraArgs")
    words = spec.torch_config.extra_args
    yield from torchrun_options.check_stray_words(words, path, "torchConfig.script")
    yield from torchrun_options.check(words, path, _GENERATED, _REMARKS)


def _script(spec: ColossalAIJobSpec) -> Iterator[Problem]:
    path: Path = ("spec", "torchConfig", "script")
    script = spec.torch_config.script
    if spec.run_mode.debug.enabled and not script:
        return
    if not script:
        yield error(path, "is required, except in debug mode")
        return
    # Measured: with anything else `colossalai run` ends with 0 without running it (decision 7).
    if not (script[0].endswith(".py") or script[0] == "-m"):
        message = f"must start with a file ending in .py or with -m, not '{script[0][:80]}'"
        hint = script[1] if len(script) > 1 and script[1].endswith(".py") else ""
        yield error((*path, 0), message + (f"; begin with '{hint}'" if hint else ""))
    elif script == ("-m",):
        yield error((*path, 0), "-m needs a module after it")
    for index, word in enumerate(script):
        if _SHELL.search(word) and not (len(word) > 1 and word[0] == word[-1] == "'"):
            message = f"'{word[:80]}' goes through a remote shell; quote it for the shell"
            yield warning((*path, index), message)
