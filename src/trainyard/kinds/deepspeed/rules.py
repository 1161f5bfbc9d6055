"""Rules of DeepSpeedJob."""

from __future__ import annotations

import json
from collections.abc import Iterator

from trainyard.kinds.deepspeed import KIND, options
from trainyard.kinds.deepspeed.spec import (
    LEGACY_MASTER,
    DeepSpeedConfig,
    DeepSpeedJob,
    DeepSpeedJobSpec,
)
from trainyard.kinds.shared import job_rules, labels, process_rules
from trainyard.kinds.shared.failure_policy.failure_policy_rules import check_failure_policy
from trainyard.kinds.shared.pods import pod_template_rules
from trainyard.kinds.shared.pods.template_overrides import check_overridden
from trainyard.kinds.shared.run_policy import AUTH_PATH, HOSTFILE_PATH, WORKER
from trainyard.schema.problems import Path, Problem, error

RESERVED_MOUNTS = (AUTH_PATH, HOSTFILE_PATH, "/root/.deepspeed_env")
"""Paths that belong to the controller (decision 5)."""

SCRIPT_SIZE = 192 << 10
"""The most bytes of `customCommand`, which is in an annotation of worker-0's pod: all annotations
together may have 256 KiB (decision 15)."""
_PATH: Path = ("spec", "config")
_BY = "the container runs sshd, and spec.config says what is launched over it"

CEL = {
    ("config", "run"): {
        "rule": "[has(self.python) && size(self.python) > 0, has(self.module) && "
        "size(self.module) > 0, has(self.exec) && size(self.exec) > 0].filter(x, x).size() <= 1",
        "message": "only one of python, module and exec may be set",
    },
}
"""What a server can check without us, by the place below ``spec``."""


def check(job: DeepSpeedJob) -> list[Problem]:
    """Every problem that the schema does not show."""
    spec = job.spec
    bounds = spec.elastic.range(spec.worker.replicas)
    size = bounds.maximum if spec.elastic.enabled else spec.worker.replicas
    template: Path = ("spec", "worker", "template")
    problems = [
        *job_rules.check_name(job.metadata, [(WORKER, size)]),
        *job_rules.check_run_mode(spec.run_mode, [WORKER], [LEGACY_MASTER]),
        *job_rules.check_elastic(spec.elastic, bounds),
        *pod_template_rules.check_template(spec.worker.template, template),
        *check_overridden(
            spec.worker.template,
            template,
            policy=spec.worker.restart_policy,
            of_kind=labels.OF_RANK0,
            given=job.metadata.annotations,
        ),
        *process_rules.check_references(
            spec.worker.template, template, (), process_rules.SET_BY_LAUNCHER
        ),
        *_launch(spec),
        *job_rules.check_hang(spec.run_policy.observe, spec.run_policy.model_fields_set),
        *check_failure_policy(spec.run_policy.pod_failure_policy, {WORKER: spec.worker.template}),
        *job_rules.check_backoff(spec.run_policy, [spec.worker.restart_policy]),
        *job_rules.check_launched(spec.worker.template, KIND, WORKER, template, by=_BY),
        *pod_template_rules.check_mounts(spec.worker.template, RESERVED_MOUNTS, template),
    ]
    if not spec.elastic.enabled:
        problems += job_rules.check_rank0(spec.worker.replicas, ("spec", "worker"))
    return problems


def _launch(spec: DeepSpeedJobSpec) -> Iterator[Problem]:
    config = spec.config
    if config is None:
        if not spec.run_mode.debug.enabled:
            yield error(_PATH, "is required, except in debug mode")
        return
    yield from _slots(spec, config)
    if config.custom_command is not None:
        yield from _resumed(spec)
        if len(json.dumps(config.custom_command)) > SCRIPT_SIZE:
            yield error(
                (*_PATH, "customCommand"),
                "is longer than 192 KiB; put it into a file of a volume, and run that",
            )
        elif config.custom_command.strip():
            yield from _disabled(config)
        else:
            yield error((*_PATH, "customCommand"), "must not be empty; remove it")
        return
    if not spec.run_mode.debug.enabled:
        yield from _choices(config)
    yield from options.check(config, _pool(spec, config))


def _slots(spec: DeepSpeedJobSpec, config: DeepSpeedConfig) -> Iterator[Problem]:
    found = pod_template_rules.trainer(spec.worker.template, KIND, WORKER)
    if found and config.slots_per_worker:
        path = (*_PATH, "slotsPerWorker")
        yield from process_rules.check_processes(
            config.slots_per_worker, "slotsPerWorker", path, found[1], is_given=True
        )


def _resumed(spec: DeepSpeedJobSpec) -> Iterator[Problem]:
    for index, entry in enumerate(spec.run_mode.pause.resume_specs):
        if entry.args and entry.command is None:
            path: Path = ("spec", "runMode", "pause", "resumeSpecs", index, "args")
            yield job_rules.ignored(path, "there is no script with customCommand; set command")


def _pool(spec: DeepSpeedJobSpec, config: DeepSpeedConfig) -> options.Pool:
    bounds = spec.elastic_range
    workers = bounds.maximum if bounds else spec.worker.replicas
    found = pod_template_rules.trainer(spec.worker.template, KIND, WORKER)
    slots = config.slots_per_worker or (found and pod_template_rules.gpu_count(found[1])) or 1
    return options.Pool(workers, slots, bounds is not None)


def _choices(config: DeepSpeedConfig) -> Iterator[Problem]:
    run = config.run
    values = {"python": run.python, "module": run.module, "exec": run.exec}
    chosen = [name for name, value in values.items() if value]
    if not chosen:
        yield error((*_PATH, "run"), "needs one of python, module and exec")
    elif chosen == ["python"]:
        yield from job_rules.check_script(run.python or (), (*_PATH, "run", "python"))
    elif len(chosen) > 1:
        yield error(
            (*_PATH, "run", chosen[1]),
            f"only one of python, module and exec may be set; {chosen[0]} is set too",
        )


def _disabled(config: DeepSpeedConfig) -> Iterator[Problem]:
    fields = {"localRank": "local_rank", "autotune": "autotune", "otherArgs": "other_args"}
    for alias, name in {**fields, "run": "run"}.items():
        if name in config.model_fields_set and getattr(config, name) not in ((), None):
            yield job_rules.ignored((*_PATH, alias), "customCommand replaces the whole launch")
