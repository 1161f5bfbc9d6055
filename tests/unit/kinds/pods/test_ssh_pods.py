"""What DeepSpeedJob and ColossalAIJob turn into, and what their pods are told."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
from tests.unit.kinds.pods.ssh_jobs import (
    Object,
    colossalai,
    deepspeed,
    launch_annotation,
    mounts,
    pod,
    template,
)

from trainyard.kinds.shared import labels
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.labels import HOSTFILE
from trainyard.kinds.shared.launch.ssh_workload import KEY_FILES
from trainyard.kinds.shared.workload import CleanUpPolicy, Generated, ReplicaKey, Workload, objects

RESTRICTED = template(
    pod={"securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}},
    securityContext={
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    },
)
ALLOWED_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
"""https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""

WORKLOADS = {
    "deepspeed": lambda given: deepspeed(worker={"template": given}),
    "deepspeed in debug mode": lambda given: deepspeed(
        worker={"template": given}, runMode={"debug": {"enabled": True}}
    ),
    "elastic deepspeed": lambda given: deepspeed(
        worker={"template": given}, elastic={"enabled": True, "expectedReplicas": 3}
    ),
    "colossalai": lambda given: colossalai(
        specs=[{"type": "worker", "replicas": 2, "template": given}]
    ),
}
every_workload = pytest.mark.parametrize("make", WORKLOADS.values(), ids=WORKLOADS.keys())


def violations(built: Object) -> list[str]:
    """What the restricted Pod Security Standard forbids; the parts that a template can spoil."""
    spec = built["spec"]
    found = [field for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)]
    for volume in spec["volumes"]:
        found += sorted(set(volume) - {"name"} - ALLOWED_VOLUMES)
    for container in spec["containers"]:
        context = {**spec.get("securityContext", {}), **container.get("securityContext", {})}
        if not context.get("runAsNonRoot"):
            found.append(f"{container['name']} may run as root")
        if context.get("allowPrivilegeEscalation") is not False:
            found.append(f"{container['name']} may gain privileges")
        if context.get("capabilities") != {"drop": ["ALL"]}:
            found.append(f"{container['name']} keeps capabilities")
        if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            found.append(f"{container['name']} is unconfined")
    return found


@every_workload
def test_everything_is_valid_for_kubernetes(make: Any) -> None:
    for built in objects(make(template())):
        if built["apiVersion"] == "v1":
            kubernetes_validate.validate(built, "1.31", strict=True)


@every_workload
def test_a_restricted_template_makes_restricted_pods(make: Any) -> None:
    """Nothing that we add needs a privilege; the default launcher is as confined as the worker."""
    workload = make(RESTRICTED)
    for key in workload.keys:
        assert violations(workload.build_pod(key, 1, pod_group="", resumed=False)) == []


@every_workload
def test_keys_are_made_by_the_executor_and_are_nowhere_else(make: Any) -> None:
    """The planned Secret holds no key; nothing but the Secret is ever given one."""
    workload: Workload = make(template())
    (secret,) = (d for d in workload.dependents if d.generated is Generated.SSH_KEYS)
    built = secret.manifest(secret.name)
    assert secret.name == f"{workload.base}-ssh"
    assert not set(built.get("data", {})) | set(built["stringData"]) & set(KEY_FILES)
    assert "PRIVATE KEY" not in str(list(objects(workload)))


def test_worker_0_launches_and_the_others_serve() -> None:
    workload = deepspeed(config={"slotsPerWorker": 4, "otherArgs": ["--master_port", "1"]})
    names = ["worker-0", "worker-1"]
    first, second = launch_annotation(workload), launch_annotation(workload, number=1)
    assert first["hosts"] == names
    assert first["launch"] == {
        "kind": "deepspeed",
        "form": "python",
        "program": ["train.py", "a b"],
        "slots": 4,
        "localRank": True,
        "otherArgs": ["--master_port", "1"],
    }
    assert "launch" not in second
    hostfile = pod(workload)["metadata"]["annotations"][HOSTFILE]
    assert hostfile == "".join(f"{name} slots=4\n" for name in names)
    assert HOSTFILE not in pod(workload, number=1)["metadata"]["annotations"]
    assert workload.deciding_replica == ReplicaKey("worker", 0)


def test_a_replica_has_one_name_in_hostfile_dns_and_ssh() -> None:
    """Known before the job is: without its name, and without the hash of its UID."""
    workload = deepspeed()
    built = pod(workload, number=1)
    assert built["spec"]["hostname"] == "worker-1"
    domain = f"{workload.base}.team.svc.cluster.local"
    assert built["spec"]["dnsConfig"]["searches"] == [domain]
    assert launch_annotation(workload, number=1)["places"] == {"domain": domain}
    assert by_hand(workload).startswith(f"Host worker-* !*.*\n    HostName %h.{domain}\n")
    launcher = pod(colossalai(), "launcher")
    assert launcher["spec"]["hostname"] == "launcher"


def test_without_namespaces_names_are_known_to_ssh_alone() -> None:
    """Of all workers that an elastic job may come to have, since the Secret never changes."""
    plain = Settings(plain_processes=True)
    elastic = {"enabled": True, "minReplicas": 1, "expectedReplicas": 1, "maxReplicas": 2}
    workload = deepspeed(elastic=elastic, settings=plain)
    places = launch_annotation(workload)["places"]["addresses"]
    assert list(places) == ["worker-0", "worker-1"]
    assert f"Host worker-1\n    HostName {places['worker-1']}\n" in by_hand(workload)
    launching = pod(colossalai(settings=plain), "launcher")
    hostfile = launching["metadata"]["annotations"][HOSTFILE]
    assert [line.split(".")[0] for line in hostfile.splitlines()] == ["127", "127"]


def by_hand(workload: Workload) -> str:
    """The client configuration for launches by hand."""
    (secret,) = (d for d in workload.dependents if d.generated is Generated.SSH_KEYS)
    return str(secret.manifest(secret.name)["stringData"]["config"])


@pytest.mark.parametrize(
    ("mounted", "expected"),
    [("/data", True), ("/job", False), ("/job/", False), ("/job/hostfile", False)],
)
def test_the_hostfile_is_also_where_deepspeed_looks_by_itself(mounted: str, expected: bool) -> None:
    """Unless something of the user's is mounted there."""
    theirs = {"name": "theirs", "mountPath": mounted}
    given = template(pod={"volumes": [{"name": "theirs", "emptyDir": {}}]}, volumeMounts=[theirs])
    found = mounts(pod(deepspeed(worker={"template": given})))
    ours = found.get("/job/hostfile", {}).get("name") == "trainyard-launch"
    assert ours is expected
    assert found["/t9k/hostfile"]["subPath"] == "hostfile"


@pytest.mark.parametrize(
    ("resources", "slots"),
    [
        ({}, 1),
        ({"limits": {"nvidia.com/gpu": 8, "cpu": "4"}}, 8),
        ({"requests": {"amd.com/gpu": "2"}, "limits": {"amd.com/gpu": "2"}}, 2),
        ({"limits": {"nvidia.com/mig-1g.5gb": 2, "nvidia.com/mig-2g.10gb": "1"}}, 3),
    ],
)
def test_slots_default_to_the_gpus_of_the_training_container(resources: Object, slots: int) -> None:
    given = template(resources=resources)
    given["spec"]["containers"].append({"name": "sidecar", "resources": {"limits": {"x/gpu": 3}}})
    assert launch_annotation(deepspeed(worker={"template": given}))["launch"]["slots"] == slots


def test_a_custom_command_is_a_script_of_a_shell() -> None:
    launch = launch_annotation(
        deepspeed(config={"customCommand": "deepspeed x.py", "slotsPerWorker": 2})
    )
    script = {"argv": ["/bin/sh"], "script": "deepspeed x.py"}
    assert launch["launch"] == {"kind": "command", **script, "slots": 2}


def test_only_literal_variables_go_into_the_env_file() -> None:
    """Others may differ between replicas, or are secret; their names are known all the same."""
    env = [
        {"name": "LITERAL", "value": "x"},
        {"name": "EXPANDED", "value": "$(LITERAL)"},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    given = launch_annotation(deepspeed(worker={"template": template(env=env)}))
    assert given["literalEnv"] == ["PYTHONUNBUFFERED", "TRAINYARD_ATTEMPT", "LITERAL"]
    assert given["customEnv"][-3:] == ["LITERAL", "EXPANDED", "SECRET"]
    disabled = launch_annotation(
        deepspeed(worker={"template": template(env=env)}, disableCustomEnv=True)
    )
    assert disabled["disableCustomEnv"]
    assert "literalEnv" not in disabled


def test_debug_mode_starts_sshd_and_launches_nothing() -> None:
    given = launch_annotation(deepspeed(runMode={"debug": {"enabled": True}}))
    assert given["debug"] == ["/usr/sbin/sshd", "-D"]
    assert "launch" not in given
    assert launch_annotation(colossalai(runMode={"debug": {"enabled": True}}))["debug"] == [
        "sleep",
        "inf",
    ]


def test_an_entry_for_master_is_about_worker_0() -> None:
    """Founding documents name it so; the entry for `worker` holds for the others."""
    entries = [{"type": "worker", "command": ["w"]}, {"type": "master", "command": ["m"]}]
    workload = deepspeed(runMode={"debug": {"enabled": True, "replicaSpecs": entries}})
    assert [launch_annotation(workload, number=number)["debug"] for number in (0, 1)] == [
        ["m"],
        ["w"],
    ]


@pytest.mark.parametrize(
    ("workload", "leader"),
    [
        (deepspeed(config={"run": {}}, runMode={"debug": {"enabled": True}}), "worker"),
        (colossalai(torch={"script": []}, runMode={"debug": {"enabled": True}}), "launcher"),
    ],
)
def test_debug_mode_needs_nothing_to_launch(workload: Workload, leader: str) -> None:
    """Before: no pod could be built, since the line that debug mode replaces was looked for."""
    assert labels.REPLACED not in pod(workload, leader)["metadata"]["annotations"]


def test_resume_replaces_arguments_or_the_whole_launch() -> None:
    """Arguments stay in the generated launch; a command takes its place. Before: neither."""
    change = {"type": "worker", "args": ["--resume"]}
    paused = deepspeed(runMode={"pause": {"resumeSpecs": [change]}})
    assert launch_annotation(paused)["launch"]["program"] == ["train.py", "a b"]
    assert launch_annotation(paused, resumed=True)["launch"]["program"] == ["train.py", "--resume"]
    replaced = deepspeed(runMode={"pause": {"resumeSpecs": [{**change, "command": ["x"]}]}})
    assert launch_annotation(replaced, resumed=True)["launch"]["argv"] == ["x", "--resume"]
    launcher = {"type": "launcher", "args": ["--resume"]}
    job = colossalai(
        torch={"script": ["-m", "package.train", "old"]},
        runMode={"pause": {"resumeSpecs": [launcher]}},
    )
    program = launch_annotation(job, "launcher", resumed=True)["launch"]["program"]
    assert program == ["-m", "package.train", "--resume"]


@pytest.mark.parametrize(("wanted", "given"), [(0, 1), (2, 2), (9, 3)])
def test_an_elastic_job_has_the_wanted_workers_within_its_bounds(wanted: int, given: int) -> None:
    """And worker-0, which carries the hostfile, is revised with every size."""
    bounds = {"enabled": True, "minReplicas": 1, "maxReplicas": 3, "expectedReplicas": wanted}
    workload = deepspeed(elastic=bounds)
    assert workload.replicas == given
    assert len(launch_annotation(workload)["hosts"]) == given
    assert workload.revision(ReplicaKey("worker", 0)) == str(given)
    assert workload.revision(ReplicaKey("worker", 1)) == ""
    assert pod(workload)["metadata"]["annotations"]["trainyard.dev/revision"] == str(given)


def test_a_missing_launcher_is_like_a_worker_without_its_resources() -> None:
    env = [{"name": "A", "value": "b"}]
    worker = template(
        workingDir="/work",
        env=env,
        imagePullPolicy="Never",
        resources={"limits": {"nvidia.com/gpu": 1}},
        pod={"imagePullSecrets": [{"name": "registry"}]},
    )
    workload = colossalai(specs=[{"type": "worker", "template": worker}])
    built = pod(workload, "launcher")
    (container,) = built["spec"]["containers"]
    assert built["metadata"]["name"] == f"{workload.base}-launcher"
    assert container["name"] == "launcher"
    assert (container["image"], container["workingDir"]) == ("image", "/work")
    assert container["imagePullPolicy"] == "Never"
    assert env[0] in container["env"]
    assert "resources" not in container
    assert built["spec"]["imagePullSecrets"] == [{"name": "registry"}]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--max_restarts=3"], ["max_restarts=3"]),
        (["--max_restarts", "3"], ["max_restarts=3"]),
        (["--no_python", "--tee", "3"], ["no_python", "tee=3"]),
        ([], []),
    ],
)
def test_torchrun_options_in_the_spelling_of_colossalai(
    options: list[str], expected: list[str]
) -> None:
    workload = colossalai(torch={"extraArgs": options, "procPerWorker": 2})
    launch = launch_annotation(workload, "launcher")["launch"]
    assert launch["extraArgs"] == expected
    assert launch["processes"] == 2


def test_the_colossalai_hostfile_has_bare_names() -> None:
    """`slots=` would become a part of the name."""
    workload = colossalai()
    hostfile = pod(workload, "launcher")["metadata"]["annotations"][HOSTFILE]
    assert hostfile == "worker-0\nworker-1\n"


def test_one_budget_and_one_place_for_keys_and_sshd() -> None:
    """The larger limit counts, whichever type has it; `ssh` says where keys and sshd are."""
    policy = {"policy": "OnFailure", "limit": 2}
    worker = {"type": "worker", "restartPolicy": policy, "template": template()}
    ssh = {"authMountPath": "/home/me/.ssh", "sshdPath": "/opt/sshd"}
    workload = colossalai(specs=[worker], ssh=ssh, runPolicy={"cleanUpWorkers": True})
    assert [each.limit for each in workload.types] == [2, 2]
    assert workload.clean_up is CleanUpPolicy.WORKERS
    for kind in ("launcher", "worker"):
        assert "/home/me/.ssh" in mounts(pod(workload, kind))
        assert launch_annotation(workload, kind)["sshd"] == "/opt/sshd"
