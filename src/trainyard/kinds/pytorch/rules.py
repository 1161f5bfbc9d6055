"""Rules of PyTorchTrainingJob."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.kinds.pytorch import KIND, options
from trainyard.kinds.pytorch.spec import PyTorchTrainingJob, PyTorchTrainingJobSpec
from trainyard.kinds.shared import job_rules, labels, process_rules
from trainyard.kinds.shared.failure_policy.failure_policy_rules import check_failure_policy
from trainyard.kinds.shared.in_place.in_place_rules import check_in_place
from trainyard.kinds.shared.node_check.node_check_rules import check_node_check
from trainyard.kinds.shared.pods import pod_template_rules
from trainyard.kinds.shared.pods.template_overrides import check_overridden
from trainyard.kinds.shared.workload import RestartPolicy, SuccessPolicy
from trainyard.kinds.tensorboard import rules
from trainyard.schema.problems import Path, Problem, error, warning

_PYTHON = re.compile(r"(.*/)?(python|torchrun)[\d.]*\Z")
_COUNT = re.compile(r"[1-9]\d{0,4}\Z", re.ASCII)

_RANK_VARIABLES = {
    False: (
        ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"),
        "a job without torchrun has one rank in each replica, and no such variable",
    ),
    True: ((), "torchrun sets it for the processes that it starts; read it from os.environ there"),
}
"""By whether torchrun launches: what containers have, and where the others are."""


def check(job: PyTorchTrainingJob) -> list[Problem]:
    """Every problem that the schema does not show."""
    spec = job.spec
    types = [replica.type for replica in spec.replica_specs]
    total = sum(replica.replicas for replica in spec.replica_specs)
    bounds = spec.elastic.range(total)
    most = bounds.maximum if spec.elastic.enabled else 0
    sizes = [(r.type, max(r.replicas, most)) for r in spec.replica_specs]
    path: Path = ("spec", "replicaSpecs")
    problems = [
        *job_rules.check_name(job.metadata, sizes),
        *job_rules.check_types(types, path),
        *job_rules.check_run_mode(spec.run_mode, types),
        *job_rules.check_elastic(spec.elastic, bounds),
        *_torchrun(spec),
        *job_rules.check_hang(spec.run_policy.observe, spec.run_policy.model_fields_set),
        *_in_place(spec),
        *_preload(spec),
        *check_node_check(spec.run_policy.node_check, spec.elastic.enabled, _without_command(spec)),
        *check_failure_policy(
            spec.run_policy.pod_failure_policy, {r.type: r.template for r in spec.replica_specs}
        ),
        *job_rules.check_backoff(spec.run_policy, [r.restart_policy for r in spec.replica_specs]),
    ]
    everybody = spec.run_policy.success_policy is SuccessPolicy.ALL_REPLICAS
    for index, replica in enumerate(spec.replica_specs):
        here = (*path, index)
        problems += pod_template_rules.check_template(replica.template, (*here, "template"))
        problems += check_overridden(
            replica.template,
            (*here, "template"),
            policy=replica.restart_policy,
            of_kind=labels.OF_RANK0,
            given=job.metadata.annotations,
        )
        problems += process_rules.check_references(
            replica.template, (*here, "template"), *_RANK_VARIABLES[spec.torchrun_config.enabled]
        )
        if everybody and replica.restart_policy is RestartPolicy.ALWAYS:
            why = "successPolicy is AllReplicas, so an exit 0 is final; write OnFailure"
            problems.append(warning((*here, "restartPolicy"), f"restarts failures only: {why}"))
        if replica.restart_scope is not None and spec.torchrun_config.enabled:
            why = "torchrun makes one group of all replicas; use runPolicy.restartScope"
            problems.append(error((*here, "restartScope"), f"cannot be used: {why}"))
        if replica is spec.by_rank[0]:
            problems += job_rules.check_rank0(replica.replicas, here)
    if spec.elastic.enabled and not spec.torchrun_config.enabled:
        why = "a job that does not use torchrun cannot be elastic"
        problems.append(job_rules.ignored(("spec", "elastic", "enabled"), why))
    if spec.tensorboard_spec is not None:
        problems += rules.check_spec(spec.tensorboard_spec, ("spec", "tensorboardSpec"))
    return problems


def _plain(spec: PyTorchTrainingJobSpec) -> Iterator[Problem]:
    total = sum(replica.replicas for replica in spec.replica_specs)
    for index, replica in enumerate(spec.replica_specs):
        if found := pod_template_rules.trainer(replica.template, KIND, replica.type):
            path: Path = ("spec", "replicaSpecs", index, "template", "spec", "containers", found[0])
            yield from process_rules.check_ranks(found[1], replica.replicas, total, path)


def _in_place(spec: PyTorchTrainingJobSpec) -> Iterator[Problem]:
    policy, config = spec.run_policy, spec.torchrun_config
    if policy.restart_mode == "InPlace":
        yield from check_in_place(
            [policy.restart_scope, *(each.restart_scope for each in spec.replica_specs)],
            is_elastic=spec.elastic.enabled,
            agents_stay=config.enabled
            and bool(config.max_restarts)
            and policy.restart_scope is None,
            without_command=_without_command(spec),
        )


def _without_command(spec: PyTorchTrainingJobSpec) -> Iterator[Path]:
    """Training containers that run their image's own command."""
    for index, replica in enumerate(spec.replica_specs):
        found = pod_template_rules.trainer(replica.template, KIND, replica.type)
        if found and not spec.torchrun_config.enabled and not found[1].get("command"):
            yield ("spec", "replicaSpecs", index, "template", "spec", "containers", found[0])


def _preload(spec: PyTorchTrainingJobSpec) -> Iterator[Problem]:
    """Where `preload` has no effect: no second Python waits for an attempt (decision 307)."""
    policy, path = spec.run_policy, ("spec", "runPolicy", "preload")
    if not policy.preload:
        return
    if policy.restart_mode != "InPlace":
        yield job_rules.ignored(path, "restartMode is not InPlace")
    elif spec.torchrun_config.enabled:
        yield job_rules.ignored(path, "torchrun's agents start the processes that train")
    elif policy.observe is False:
        yield job_rules.ignored(path, "observe is false, and the observer's hook is what waits")


def _torchrun(spec: PyTorchTrainingJobSpec) -> Iterator[Problem]:
    config = spec.torchrun_config
    if config.proc_per_node != "gpu" and not _COUNT.match(config.proc_per_node):
        yield error(
            ("spec", "torchrunConfig", "procPerNode"),
            f"must be a positive number in quotes or gpu, not '{config.proc_per_node[:40]}'",
        )
    if not config.enabled:
        yield from job_rules.check_unused(config, ("spec", "torchrunConfig"))
        yield from _plain(spec)
        return
    yield from options.check(config)
    for index, replica in enumerate(spec.replica_specs):
        if found := pod_template_rules.trainer(replica.template, KIND, replica.type):
            path: Path = ("spec", "replicaSpecs", index, "template", "spec", "containers", found[0])
            yield from _torchrun_container(spec, found[1], path)


def _torchrun_container(
    spec: PyTorchTrainingJobSpec, container: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    config, args = spec.torchrun_config, container.get("args")
    if not spec.run_mode.debug.enabled:
        # torchrun starts what is in args; a script in command would be ignored (decision 6).
        if not args:
            message = "is required under torchrun, which ignores command; move the script to args"
            yield error((*path, "args"), message)
        else:
            yield from options.check_args(config, args, (*path, "args"))
    command = container.get("command") or []
    if command and args and not (len(command) == 1 and _PYTHON.match(command[0])):
        yield job_rules.ignored((*path, "command"), "torchrun starts the script in args")
    if _COUNT.match(config.proc_per_node):
        yield from process_rules.check_processes(
            int(config.proc_per_node),
            "torchrunConfig.procPerNode",
            (*path, "resources"),
            container,
            is_given="proc_per_node" in config.model_fields_set,
        )
    if config.proc_per_node == "gpu" and not pod_template_rules.gpu_count(container):
        message = "procPerNode is gpu, but the container asks for none; one process is started"
        yield warning((*path, "resources"), message)
