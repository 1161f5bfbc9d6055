"""What a PyTorchTrainingJob turns into."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
from tests.unit.kinds.pods.jobs import UID, container, env, job, pod, replicas, workload

from trainyard.kinds.shared.job_settings import GangBackend, Settings
from trainyard.kinds.shared.workload import CleanUpPolicy, ReplicaKey, Scope, objects

KIND = "PyTorchTrainingJob"
BASE = "torch-mnist-trainingjob-7a8f5"


def plain(**spec: Any) -> dict[str, Any]:
    return job(KIND, **{"replicaSpecs": [replicas(count=4)], **spec})


def under_torchrun(**config: Any) -> dict[str, Any]:
    return plain(torchrunConfig={"enabled": True, **config})


def options(built: dict[str, Any]) -> list[str]:
    args: list[str] = container(built)["args"]
    return args


def test_pod_has_name_host_name_owner_and_labels() -> None:
    built = pod(workload(plain()), ordinal=2)
    meta, spec = built["metadata"], built["spec"]
    assert (meta["name"], meta["namespace"]) == (f"{BASE}-worker-2", "ml")
    assert (spec["hostname"], spec["subdomain"]) == (f"{BASE}-worker-2", BASE)
    assert spec["dnsConfig"] == {"searches": [f"{BASE}.ml.svc.cluster.local"]}
    assert spec["restartPolicy"] == "Never"
    assert meta["ownerReferences"] == [
        {
            "apiVersion": "batch.tensorstack.dev/v1beta1",
            "kind": KIND,
            "name": "torch-mnist-trainingjob",
            "uid": UID,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert meta["labels"] == {
        "tensorstack.dev/owner-name": "torch-mnist-trainingjob",
        "tensorstack.dev/component": "pytorchtrainingjob",
        "tensorstack.dev/component-type": "user",
        "trainyard.dev/job-uid": UID,
        "trainyard.dev/replica-type": "worker",
        "replica-index": "2",
    }
    assert meta["annotations"] == {"trainyard.dev/attempt": "1"}


def test_template_metadata_is_kept_and_the_template_unchanged() -> None:
    spec = replicas()
    spec["template"]["metadata"] = {"labels": {"team": "a"}, "annotations": {"note": "b"}}
    described = workload(plain(replicaSpecs=[spec]))
    built = pod(described)
    assert built["metadata"]["labels"]["team"] == "a"
    assert built["metadata"]["annotations"]["note"] == "b"
    assert pod(described) == built


def test_rank_0_has_the_master_role() -> None:
    described = workload(plain())
    assert pod(described)["metadata"]["labels"]["job-role"] == "master"
    assert "job-role" not in pod(described, ordinal=1)["metadata"]["labels"]


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([("worker", 2)], {("worker", 0): 0, ("worker", 1): 1}),
        ([("ps", 1), ("worker", 2)], {("ps", 0): 0, ("worker", 0): 1, ("worker", 1): 2}),
        ([("worker", 2), ("master", 1)], {("master", 0): 0, ("worker", 0): 1, ("worker", 1): 2}),
        ([("b", 1), ("a", 1), ("master", 1)], {("master", 0): 0, ("b", 0): 1, ("a", 0): 2}),
        ([("empty", 0), ("node", 2)], {("node", 0): 0, ("node", 1): 1}),
    ],
    ids=["one type", "list order", "master first", "stable", "empty first type"],
)
def test_ranks_count_through_types_then_indexes(
    types: list[tuple[str, int]], expected: dict[tuple[str, int], int]
) -> None:
    described = workload(plain(replicaSpecs=[replicas(t, n) for t, n in types]))
    ranks = {(k.type, k.ordinal): int(env(pod(described, *k))["RANK"]) for k in described.keys}
    assert ranks == expected
    assert {env(pod(described, *k))["WORLD_SIZE"] for k in described.keys} == {str(len(expected))}
    assert described.deciding_replica == ReplicaKey(*min(expected, key=lambda k: expected[k]))


def test_plain_environment_comes_before_the_users_whose_values_win() -> None:
    user = [{"name": "URL", "value": "$(MASTER_ADDR)"}, {"name": "MASTER_PORT", "value": "1234"}]
    spec = replicas(count=2, containers=[{"name": "a", "image": "i", "args": ["x"], "env": user}])
    built = pod(workload(plain(replicaSpecs=[spec])), ordinal=1)
    assert list(env(built).items()) == [
        ("MASTER_ADDR", f"{BASE}-worker-0"),
        ("RANK", "1"),
        ("WORLD_SIZE", "2"),
        ("TORCHELASTIC_RESTART_COUNT", "0"),
        ("URL", "$(MASTER_ADDR)"),
        ("MASTER_PORT", "1234"),
    ]


def test_plain_mode_leaves_command_and_args_alone() -> None:
    spec = replicas(
        containers=[{"name": "a", "image": "i", "command": ["/bin/sh", "-c"], "args": ["go"]}]
    )
    built = pod(workload(plain(replicaSpecs=[spec])))
    assert container(built)["command"] == ["/bin/sh", "-c"]
    assert container(built)["args"] == ["go"]


def test_torchrun_options_are_visible_in_the_pod() -> None:
    built = pod(workload(under_torchrun(maxRestarts=2, procPerNode="2", extraOptions=["--tee=3"])))
    assert options(built) == [
        *("--nnodes", "4"),
        *("--nproc_per_node", "2"),
        *("--rdzv_backend", "c10d"),
        *("--rdzv_endpoint", f"{BASE}-worker-0:29500"),
        *("--rdzv_id", BASE),
        *("--role", "worker"),
        *("--max_restarts", "2"),
        "--tee=3",
        *("train.py", "--lr=1"),
    ]
    assert container(built)["command"][-1] == "torchrun"
    assert list(env(built)) == ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"], (
        "a PET_ or RANK variable would mislead torchrun"
    )


@pytest.mark.parametrize(("gpus", "processes"), [(4, "4"), (0, "1")])
def test_gpu_means_as_many_processes_as_the_replica_has_gpus(gpus: int, processes: str) -> None:
    limits = {"resources": {"limits": {"nvidia.com/gpu": gpus}}}
    main = {"name": "pytorch", "image": "i", "args": ["a.py"], **limits}
    described = workload(
        plain(
            torchrunConfig={"enabled": True, "procPerNode": "gpu"},
            replicaSpecs=[replicas(containers=[main])],
        )
    )
    given = options(pod(described))
    assert given[given.index("--nproc_per_node") + 1] == processes


def test_max_restarts_is_left_to_torchrun_unless_given() -> None:
    built = pod(workload(under_torchrun()))
    assert "--max_restarts" not in options(built)
    assert env(built) == {}


@pytest.mark.parametrize(
    ("names", "training"),
    [
        (["sidecar", "pytorch", "python"], "pytorch"),
        (["sidecar", "python"], "python"),
        (["first", "second"], "first"),
    ],
)
def test_the_training_container_is_found_by_name(names: list[str], training: str) -> None:
    containers = [{"name": name, "image": "i", "args": ["t.py"]} for name in names]
    spec = [replicas(containers=containers)]
    described = workload(plain(replicaSpecs=spec, torchrunConfig={"enabled": True}))
    launched = [c["name"] for c in pod(described)["spec"]["containers"] if "--nnodes" in c["args"]]
    assert launched == [training]
    assert described.types[0].main_container == training


def elastic(extra: list[str] | None = None, expected: int = 3, **more: Any) -> dict[str, Any]:
    return plain(
        torchrunConfig={"enabled": True, "extraOptions": extra or []},
        elastic={
            "enabled": True,
            "minReplicas": 2,
            "maxReplicas": 6,
            "expectedReplicas": expected,
            **more,
        },
    )


def test_elastic_passes_the_range_and_survives_leavers() -> None:
    described = workload(elastic())
    text = " ".join(options(pod(described)))
    assert "--nnodes 2:6" in text
    assert "--max_restarts 100" in text
    assert "--rdzv_conf last_call_timeout=5,keep_alive_interval=2" in text
    assert env(pod(described)) == {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    assert described.replicas == 3
    assert described.survivors_stay


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        (
            ["--rdzv_conf", "last_call_timeout=9"],
            ["--rdzv_conf", "last_call_timeout=9,keep_alive_interval=2"],
        ),
        (
            ["--rdzv-conf=timeout=9"],
            ["--rdzv-conf=timeout=9,last_call_timeout=5,keep_alive_interval=2"],
        ),
        (
            ["--rdzv_conf", "keep_alive_interval=9,last_call_timeout=9"],
            ["--rdzv_conf", "keep_alive_interval=9,last_call_timeout=9"],
        ),
        (
            ["--rdzv_conf"],
            ["--rdzv_conf", "last_call_timeout=5,keep_alive_interval=2", "--rdzv_conf"],
        ),
    ],
)
def test_the_users_rendezvous_options_win(extra: list[str], expected: list[str]) -> None:
    args = options(pod(workload(elastic(extra))))
    assert args[args.index("100") + 1 : args.index("train.py")] == expected


@pytest.mark.parametrize(("expected", "size"), [(1, 2), (2, 2), (6, 6), (9, 6)])
def test_a_size_out_of_range_is_clamped(expected: int, size: int) -> None:
    assert workload(elastic(expected=expected)).replicas == size


def test_elastic_without_torchrun_is_ignored() -> None:
    described = workload(plain(elastic={"enabled": True, "expectedReplicas": 9}))
    assert described.elastic is None
    assert described.replicas == 4


def debug(**entry: Any) -> dict[str, Any]:
    entries = [{"type": "worker", **entry}] if entry else []
    return {"debug": {"enabled": True, "replicaSpecs": entries}}


@pytest.mark.parametrize("config", [{}, {"torchrunConfig": {"enabled": True}}])
def test_debug_replaces_the_command_and_drops_what_could_end_it(config: dict[str, Any]) -> None:
    probe = {"exec": {"command": ["true"]}}
    spec = replicas(
        containers=[
            {
                "name": "pytorch",
                "image": "i",
                "command": ["python"],
                "args": ["train.py"],
                "livenessProbe": probe,
                "readinessProbe": probe,
                "startupProbe": probe,
                "lifecycle": {"postStart": probe},
            }
        ]
    )
    built = pod(workload(plain(replicaSpecs=[spec], runMode=debug(), **config)))
    assert container(built)["command"] == ["sleep", "inf"]
    assert not {"args", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"} & set(
        container(built)
    )
    assert env(built)["MASTER_ADDR"] == f"{BASE}-worker-0", "a launch by hand needs it"


def test_debug_command_and_init_containers_can_be_chosen() -> None:
    spec = replicas()
    spec["template"]["spec"]["initContainers"] = [{"name": "init", "image": "i"}]
    kept = pod(workload(plain(replicaSpecs=[spec], runMode=debug(command=["sshd", "-D"]))))
    assert container(kept)["command"] == ["sshd", "-D"]
    assert "initContainers" in kept["spec"]
    dropped = pod(workload(plain(replicaSpecs=[spec], runMode=debug(skipInitContainer=True))))
    assert "initContainers" not in dropped["spec"]


def resuming(**entry: Any) -> dict[str, Any]:
    return {"pause": {"resumeSpecs": [{"type": "worker", **entry}]}}


def test_resume_args_stay_wrapped_in_torchrun() -> None:
    described = workload(
        plain(torchrunConfig={"enabled": True}, runMode=resuming(args=["train.py", "--resume"]))
    )
    assert options(pod(described, resumed=True))[-2:] == ["train.py", "--resume"]
    assert "--nnodes" in options(pod(described, resumed=True))
    assert options(pod(described))[-2:] == ["train.py", "--lr=1"], "before the first pause"


def test_resume_command_replaces_the_whole_launch() -> None:
    described = workload(
        plain(torchrunConfig={"enabled": True}, runMode=resuming(command=["python", "again.py"]))
    )
    built = pod(described, resumed=True)
    assert (container(built)["command"], container(built)["args"]) == (["python", "again.py"], [])


def test_resume_in_plain_mode_replaces_what_it_names() -> None:
    described = workload(plain(runMode=resuming(command=["python", "-u"])))
    built = pod(described, resumed=True)
    assert container(built)["command"] == ["python", "-u"]
    assert container(built)["args"] == ["train.py", "--lr=1"]


def scheduled(**more: Any) -> dict[str, Any]:
    return plain(scheduler={"t9kScheduler": {"queue": "gpu", "priority": 50}}, **more)


def test_t9k_scheduler_makes_a_pod_group_and_marks_the_pods() -> None:
    described = workload(scheduled())
    built = pod(described)
    assert built["spec"]["schedulerName"] == "t9k-scheduler"
    marks = {k: v for k, v in built["metadata"]["labels"].items() if k.startswith("scheduler.")}
    assert marks == {
        "scheduler.tensorstack.dev/group-name": "group",
        "scheduler.tensorstack.dev/queue": "gpu",
        "scheduler.tensorstack.dev/role": "worker",
    }
    group = next(o for o in objects(described) if o["kind"] == "PodGroup")
    assert group["metadata"]["name"] == "torch-mnist-trainingjob"
    assert group["spec"] == {"minMember": 4, "queue": "gpu", "priority": 50}


def test_an_elastic_gang_needs_its_minimum_only() -> None:
    obj = elastic()
    obj["spec"]["scheduler"] = {"t9kScheduler": {}}
    group = next(o for o in objects(workload(obj)) if o["kind"] == "PodGroup")
    assert group["spec"] == {"minMember": 2, "queue": "default", "priority": 10}


@pytest.mark.parametrize("backend", list(GangBackend))
def test_every_gang_backend_gives_valid_pods(backend: GangBackend) -> None:
    described = workload(scheduled(), Settings(gang_backend=backend))
    made = pod(described)
    newest = backend is GangBackend.KUBERNETES  # whose field is one of 1.36
    kubernetes_validate.validate(made, "1.36" if newest else "1.31", strict=True)
    assert described.needs_gang == (backend is GangBackend.NONE)


def test_policies_are_passed_on() -> None:
    described = workload(
        plain(
            runPolicy={
                "backoffLimit": 7,
                "cleanUpPolicy": "Unfinished",
                "activeDeadlineSeconds": 60,
                "ttlSecondsAfterFinished": 5,
                "restartScope": "Replica",
            }
        )
    )
    assert described.types[0].limit == 7
    assert described.clean_up is CleanUpPolicy.UNFINISHED
    assert described.active_deadline_seconds == 60
    assert described.ttl_seconds_after_finished == 5
    assert described.scope is Scope.REPLICA


def test_tensorboard_is_named_as_the_base() -> None:
    described = workload(plain(tensorboardSpec={"logDir": {"pvc": [{"name": "m"}]}}))
    board = next(o for o in objects(described) if o["kind"] == "TensorBoard")
    assert board["metadata"]["name"] == BASE
    assert board["spec"] == {"logDir": {"pvc": [{"name": "m"}]}}


@pytest.mark.parametrize("obj", [plain(), under_torchrun(), elastic(), scheduled()])
def test_core_objects_pass_the_official_schema(obj: dict[str, Any]) -> None:
    for built in objects(workload(obj)):
        if built["apiVersion"] == "v1":
            kubernetes_validate.validate(built, "1.31", strict=True)


def test_without_names_peers_have_addresses_and_each_job_its_port() -> None:
    described = workload(under_torchrun(), Settings.local(plain_processes=True))
    endpoint = options(pod(described))[options(pod(described)).index("--rdzv_endpoint") + 1]
    host, port = endpoint.split(":")
    assert host.startswith("127.")
    assert 20000 <= int(port) < 32768


def test_termination_messages_fall_back_to_logs_unless_chosen() -> None:
    containers = [
        {"name": "a", "image": "i", "args": ["x"]},
        {"name": "b", "image": "i", "terminationMessagePolicy": "File"},
    ]
    built = pod(workload(plain(replicaSpecs=[replicas(containers=containers)])))
    policies = [c["terminationMessagePolicy"] for c in built["spec"]["containers"]]
    assert policies == ["FallbackToLogsOnError", "File"]


def test_working_folder_annotation_reaches_the_pods() -> None:
    obj = plain()
    obj["metadata"]["annotations"] = {"trainyard.dev/working-dir": "/src"}
    built = pod(workload(obj))
    assert built["metadata"]["annotations"]["trainyard.dev/working-dir"] == "/src"


def test_spec_hash_ignores_what_may_change() -> None:
    before = workload(elastic()).spec_hash
    assert workload(elastic(expected=5)).spec_hash == before
    paused = elastic()
    paused["spec"]["runMode"] = {"pause": {"enabled": True}}
    assert workload(paused).spec_hash == before
    assert workload(elastic(maxReplicas=7)).spec_hash != before


@pytest.mark.parametrize("is_elastic", [True, False])
def test_the_program_that_stands_for_torchrun_is_whole(is_elastic: bool) -> None:
    """It is quoted for a shell, and only elastic jobs change how agents meet."""
    obj = elastic() if is_elastic else under_torchrun()
    script = container(pod(workload(obj), ordinal=0))["command"][2]
    program = script.split("'")[1]
    compile(program, "torchrun", "exec")
    patches = "*RANK_PATCHES, *ELASTIC_PATCHES" if is_elastic else "*RANK_PATCHES"
    ending = f"main({patches})\n"
    assert program.endswith(ending), "no quotation mark within it"
    assert ("num_nodes_waiting" in program) == is_elastic


def test_torchrun_is_as_patient_as_the_pod() -> None:
    """With ranks that it has asked to end; the user's own word wins."""
    name = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
    spec = replicas()
    spec["template"]["spec"]["terminationGracePeriodSeconds"] = 300
    given = {"replicaSpecs": [spec], "torchrunConfig": {"enabled": True}}
    assert env(pod(workload(job(KIND, **given))))[name] == "300"
    spec["template"]["spec"]["containers"][0]["env"] = [{"name": name, "value": "7"}]
    assert env(pod(workload(job(KIND, **given))))[name] == "7"
