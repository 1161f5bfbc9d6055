"""TFJob, JAXJob and XGBoostJob of Kubeflow's training operator (kubeflow.org/v1).

Their pods find each other by variables that the operator sets; here they are variables of a
GenericJob, with a Service for each replica.

https://github.com/kubeflow/training-operator/tree/release-1.9/pkg/controller.v1
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from trainyard.conversion import foreign_common, indexed_job_peers
from trainyard.conversion.field_tracking import CannotConvert, Fields
from trainyard.conversion.foreign_common import Object

_RESTARTS = 6
"""Restarts of a replica of a job without `backoffLimit`."""
_FINAL_CODES = list(range(1, 128))
"""Exit codes that the policy ExitCode does not restart after."""
_NEVER_ENDING = ("ps", "evaluator")
"""Types whose replicas keep running when the others have ended."""
_DEFAULT_TYPE = "worker"
_MOST_TYPES = 100


class Framework(NamedTuple):
    """What the operator assumes for one kind."""

    specs: str
    types: tuple[str, ...]
    container: str
    port_name: str
    port: int
    restart: str
    """The restart policy of replicas that name none."""


class Replicas(NamedTuple):
    """The replicas of one type."""

    name: str
    size: int
    pod: Object
    port: int
    restart: str

    def hosts(self) -> list[str]:
        """Variables for the host of each replica."""
        return [f"$(service.{self.name}[{n}].host)" for n in range(self.size)]


_TF = Framework(
    "tfReplicaSpecs",
    ("Chief", "Master", "PS", "Worker", "Evaluator"),
    "tensorflow",
    "tfjob-port",
    2222,
    "Never",
)
_JAX = Framework("jaxReplicaSpecs", ("Worker",), "jax", "jaxjob-port", 6666, "Never")
_XGBOOST = Framework(
    "xgbReplicaSpecs", ("Master", "Worker"), "xgboost", "xgboostjob-port", 9999, "Never"
)


def convert_tf(fields: Fields) -> list[Object]:
    """The job of a TFJob."""
    return _convert(fields, _TF, _tensorflow)


def convert_jax(fields: Fields) -> list[Object]:
    """The job of a JAXJob."""
    return _convert(fields, _JAX, _jax)


def convert_xgboost(fields: Fields) -> list[Object]:
    """The job of an XGBoostJob."""
    return _convert(fields, _XGBOOST, _xgboost)


def _convert(
    fields: Fields,
    framework: Framework,
    prepare: Callable[[list[Replicas], Fields], tuple[list[Replicas], Object]],
) -> list[Object]:
    """The job. `prepare` sets the variables by which pods find each other; it returns the replicas
    to create, and the job's success rules."""
    metadata, spec = foreign_common.metadata(fields), fields.mapping("spec")
    policy, beside = foreign_common.run_policy(spec.mapping("runPolicy"))
    run = policy.get("runPolicy", {})
    clean_up, limit = run.pop("cleanUpPolicy", None), run.pop("backoffLimit", None)
    for key in run:
        spec.add_note("runPolicy", f"{key} has no counterpart: jobs of this kind stay and go on")
    specs = spec.mapping(framework.specs)
    found = [_take_replicas(specs, name, framework) for name in framework.types if name in specs]
    if not found:
        raise CannotConvert(f"{specs.at(framework.types[-1])} is missing: there are no replicas")
    if limit is None and any(each.restart != "Never" for each in found):
        spec.add_note(framework.specs, f"a replica is started again {_RESTARTS} times at most")
    replicas, rules = prepare(found, spec)
    made: Object = {"replicaSpecs": [_entry(each, limit) for each in replicas], **rules}
    if sum(each.size for each in replicas) > 1:
        made["service"] = {"ports": _ports(replicas)}
    if clean_up is None and any(each.name in _NEVER_ENDING for each in replicas):
        clean_up = "Unfinished"
    if clean_up is not None:
        made["cleanUpPolicy"] = clean_up
    if by_code := [each.name for each in replicas if each.restart == "ExitCode"]:
        codes = {"operator": "In", "values": _FINAL_CODES}
        rule = {"action": "FailJob", "onExitCodes": codes, "replicaTypes": by_code}
        made["runPolicy"] = {"podFailurePolicy": {"rules": [rule]}}
    return [foreign_common.job("none", metadata, {**made, **beside})]


def _take_replicas(specs: Fields, name: str, framework: Framework) -> Replicas:
    entry = specs.mapping(name)
    count = entry.pod_count("replicas")
    restart = str(entry.take("restartPolicy", framework.restart))
    pod = foreign_common.template(entry)
    trains = foreign_common.training_container(pod, (framework.container,))
    if trains is None:
        raise CannotConvert(f"{entry.at('template')} has no container: there is nothing to run")
    named = [p for p in trains.get("ports") or () if p.get("name") == framework.port_name]
    port = int(named[0]["containerPort"]) if named else framework.port
    return Replicas(name.lower(), count, pod, port, restart)


def _entry(replicas: Replicas, limit: Any) -> Object:
    restart: Object = {"policy": "Never"}
    if replicas.restart != "Never":
        policy = "OnFailure" if replicas.restart == "ExitCode" else replicas.restart
        restart = {"policy": policy, "limit": _RESTARTS if limit is None else limit}
    return {
        "type": replicas.name,
        "replicas": replicas.size,
        "restartPolicy": restart,
        "template": replicas.pod,
    }


def _ports(replicas: list[Replicas]) -> list[Object]:
    """Ports of the Services: the frameworks' own, and those that containers declare."""
    declared = {
        port["port"]: port
        for port in indexed_job_peers.service_ports(each.pod for each in replicas)
    }
    own = {each.port: {"port": each.port} for each in replicas}
    found = list((own | declared).values())
    if len(found) == 1:
        return [{key: value for key, value in found[0].items() if key != "name"}]
    return [{**port, "name": f"port-{n}"} for n, port in enumerate(found)]


def _set_env(pod: Object, variables: dict[str, str], container: str = "") -> None:
    """Set variables of a pod's containers, or of the one that trains; they come before others."""
    trains = foreign_common.training_container(pod, (container,))
    for each in pod["spec"]["containers"]:
        if container and each is not trains:
            continue
        kept = [entry for entry in each.get("env") or () if entry.get("name") not in variables]
        new = [{"name": name, "value": value} for name, value in variables.items()]
        each["env"] = [*new, *kept]


# -- TensorFlow --------------------------------------------------------------------------------


def _tensorflow(found: list[Replicas], spec: Fields) -> tuple[list[Replicas], Object]:
    spec.drop("enableDynamicWorker", "is left out: TF_CONFIG names all workers from the beginning")
    cluster = {each.name: [f"{h}:{each.port}" for h in each.hosts()] for each in found}
    for each in found if sum(each.size for each in found) > 1 else ():
        text = json.dumps({"cluster": cluster, "task": {"type": each.name, "index": "@"}})
        config = text.replace('"@"', "$(rank)")
        _set_env(each.pod, {"TF_CONFIG": config}, _TF.container)
    return found, _success_of_tf(found, str(spec.take("successPolicy", "")))


def _success_of_tf(found: list[Replicas], policy: str) -> Object:
    by_name = {each.name: each for each in found}
    workers = by_name.get("worker")
    chief = by_name.get("chief") or by_name.get("master")
    if policy == "AllWorkers" and workers is not None:
        rule = {"worker": list(range(workers.size))}
    elif chief is not None:
        rule = {chief.name: [0]}
    elif workers is not None:
        rule = {"worker": [0]}
    else:
        return {}
    return {"successRules": [rule]}


# -- JAX ---------------------------------------------------------------------------------------


def _jax(found: list[Replicas], spec: Fields) -> tuple[list[Replicas], Object]:
    (workers,) = found
    variables = {
        "COORDINATOR_ADDRESS": workers.hosts()[0] if workers.size > 1 else "localhost",
        "COORDINATOR_PORT": str(workers.port),
        "NUM_PROCESSES": str(workers.size),
        "PROCESS_ID": "$(rank)",
    }
    _set_env(workers.pod, variables | {"PYTHONUNBUFFERED": "1"})
    return found, {}


# -- XGBoost and LightGBM ----------------------------------------------------------------------


def _xgboost(found: list[Replicas], spec: Fields) -> tuple[list[Replicas], Object]:
    """The master has rank 0. Where it runs what workers run they are one type, whose index is the
    rank; else every worker has a type of its own."""
    by_name = {each.name: each for each in found}
    master, workers = by_name.get("master"), by_name.get("worker")
    if master is None or master.size != 1:
        raise CannotConvert(f"{spec.at('xgbReplicaSpecs')}: it needs one Master")
    count = 0 if workers is None else workers.size
    if workers is None or not count:
        alone = [master._replace(name=_DEFAULT_TYPE)]
        _set_env(master.pod, _rank_env("localhost", master.port, 1, "0"))
        return alone, {}
    if (master.pod, master.port, master.restart) == (workers.pod, workers.port, workers.restart):
        joined = workers._replace(size=count + 1)
        first, *others = joined.hosts()
        variables = _rank_env(first, master.port, count + 1, "$(rank)")
        _set_env(joined.pod, variables | _lightgbm_env(others, workers.port))
        return [joined], {"successRules": [{joined.name: [0]}]}
    if count > _MOST_TYPES:
        raise CannotConvert(
            f"{spec.at('xgbReplicaSpecs')}: more than {_MOST_TYPES} workers that differ from the "
            "Master would be a type each: give the Master the same template"
        )
    parts = [
        workers._replace(name=f"worker-{n}", size=1, pod=copy.deepcopy(workers.pod))
        for n in range(count)
    ]
    others = [name for each in parts for name in each.hosts()]
    for rank, each in enumerate((master, *parts)):
        variables = _rank_env(master.hosts()[0], master.port, count + 1, str(rank))
        _set_env(each.pod, variables | _lightgbm_env(others, workers.port))
    return [master, *parts], {"successRules": [{master.name: [0]}]}


def _rank_env(master: str, port: int, size: int, rank: str) -> dict[str, str]:
    return {
        "MASTER_ADDR": master,
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(size),
        "RANK": rank,
        "PYTHONUNBUFFERED": "1",
    }


def _lightgbm_env(hosts: list[str], port: int) -> dict[str, str]:
    """Variables by which LightGBM finds the workers."""
    return {"WORKER_PORT": str(port), "WORKER_ADDRS": ",".join(hosts)}
