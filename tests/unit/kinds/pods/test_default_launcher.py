"""A ColossalAIJob's launcher without a container has its workers' pod, but what cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kinds.pods.ssh_jobs import Object, colossalai, pod, template

from trainyard.kinds.colossalai import default_launcher as left_out
from trainyard.schema.kubernetes_schemas import definitions

POD_FIELDS = """
    activeDeadlineSeconds affinity automountServiceAccountToken dnsConfig dnsPolicy
    enableServiceLinks evictionResponders hostAliases hostUsers imagePullSecrets nodeName
    nodeSelector os overhead preemptionPolicy priority priorityClassName runtimeClassName
    schedulerName schedulingGates securityContext serviceAccount serviceAccountName
    setHostnameAsFQDN terminationGracePeriodSeconds tolerations volumes
"""
CONTAINER_FIELDS = """
    env envFrom image imagePullPolicy securityContext terminationMessagePath
    terminationMessagePolicy volumeMounts workingDir
"""
VOLUMES = """
    azureFile cephfs configMap csi emptyDir flexVolume flocker gitRepo glusterfs hostPath image
    name nfs portworxVolume projected quobyte scaleIO secret storageos
"""


@pytest.mark.parametrize(
    ("definition", "taken", "left", "ours"),
    [
        ("PodSpec", POD_FIELDS, left_out.POD_FIELDS_LEFT_OUT,
         "containers hostname restartPolicy subdomain"),
        ("Affinity", "nodeAffinity", left_out.AFFINITIES_LEFT_OUT, ""),
        ("Container", CONTAINER_FIELDS, left_out.CONTAINER_FIELDS_LEFT_OUT, "args command name"),
        ("Volume", VOLUMES, left_out.VOLUMES_LEFT_OUT, ""),
    ],
)  # fmt: skip
def test_each_field_is_taken_over_or_left_out_for_a_reason_or_ours(
    definition: str, taken: str, left: Object, ours: str
) -> None:
    """A field that Kubernetes adds is taken over until somebody has decided."""
    decided = [*taken.split(), *left, *ours.split()]
    assert sorted(decided) == sorted(definitions("pod_template")[definition]["properties"])
    assert all(left.values())


WORKERS: Object = {
    "terminationGracePeriodSeconds": 300,
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "nodeSelector": {"pool": "training"},
    "serviceAccountName": "trainer",
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["store"]}],
    "dnsPolicy": "None",
    "priorityClassName": "high",
    "runtimeClassName": "nvidia",
    "schedulerName": "theirs",
    "imagePullSecrets": [{"name": "registry"}],
    "securityContext": {"runAsUser": 1000},
}


def launcher(own: Object | None = None, pod_spec: Object | None = None, **training: Any) -> Object:
    specs = [{"type": "worker", "template": template(pod=pod_spec, **training)}]
    if own is not None:
        specs.append({"type": "launcher", "template": own})
    built: Object = pod(colossalai(specs=specs), "launcher")
    return built["spec"]


def test_what_a_cluster_asks_of_workers_is_asked_of_the_launcher() -> None:
    spec = launcher(pod_spec=WORKERS)
    assert {field: spec[field] for field in WORKERS} == WORKERS
    assert spec["hostname"] == "launcher"


def test_dns_of_the_workers_is_extended_and_not_replaced() -> None:
    spec = launcher(pod_spec={"dnsConfig": {"nameservers": ["10.0.0.2"], "searches": ["lab"]}})
    assert spec["dnsConfig"]["nameservers"] == ["10.0.0.2"]
    assert spec["dnsConfig"]["searches"][0] == "lab"


def test_fields_of_its_own_template_win() -> None:
    own = {"spec": {"terminationGracePeriodSeconds": 7}}
    spec = launcher(own, WORKERS)
    assert spec["terminationGracePeriodSeconds"] == 7
    assert spec["nodeSelector"] == {"pool": "training"}


def test_it_takes_no_device_and_no_room_from_workers_and_may_stand_beside_them() -> None:
    apart = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}]
    near = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}
    spec = launcher(
        pod_spec={
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": near},
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart},
            },
            "hostNetwork": True,
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
        },
        resources={"limits": {"nvidia.com/gpu": 8}, "claims": [{"name": "gpu"}]},
        ports=[{"containerPort": 80}],
    )
    (container,) = spec["containers"]
    assert list(spec["affinity"]) == ["nodeAffinity"]
    assert not {"hostNetwork", "resourceClaims"} & spec.keys()
    assert not {"resources", "ports"} & container.keys()


def test_it_has_the_volumes_that_any_node_can_mount() -> None:
    volumes = [
        {"name": "scratch", "emptyDir": {}},
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "own", "projected": {"sources": [{"downwardAPI": {}}]}},
    ]
    mounts = [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in volumes]
    resource = {"resourceFieldRef": {"containerName": "worker", "resource": "limits.cpu"}}
    spec = launcher(
        pod_spec={"volumes": volumes},
        volumeMounts=mounts,
        env=[{"name": "CPUS", "valueFrom": resource}, {"name": "A", "value": "b"}],
        workingDir="/scratch",
    )
    (container,) = spec["containers"]
    names = {volume["name"] for volume in spec["volumes"]}
    assert names & {"scratch", "settings", "data", "own"} == {"scratch", "settings"}
    assert {mount["name"] for mount in container["volumeMounts"]} <= names
    assert "/scratch" in {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"name": "A", "value": "b"} in container["env"]
    assert "CPUS" not in {variable["name"] for variable in container["env"]}
