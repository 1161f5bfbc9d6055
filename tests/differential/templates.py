"""Pod templates that Kubernetes' own unit tests of its validation expect to be refused.

Rebuilt from what `pkg/apis/core/validation` is tested with, one fault each; the corpus of requests
has others.
"""

from __future__ import annotations

from typing import Any

from tests.differential.objects import (
    EMPTY,
    C,
    V,
    affinity,
    first,
    mount,
    probe,
    projected,
    resources,
    second,
    source,
    spread,
    volume,
)

_TERM = {"topologyKey": "a"}
_HOOK = f"{C}lifecycle"
_WINDOWS = f"{C}securityContext"
_DEVICES = {"devicePath": "/dev/x", "name": "v"}
_BLOCK = volume(persistentVolumeClaim={"claimName": "c"})
_ISCSI = {"targetPortal": "127.0.0.1", "iqn": "iqn.2015-02.example.com:test", "lun": 1}


def _windows(**options: Any) -> dict[str, Any]:
    return {_WINDOWS: {"windowsOptions": options}}


def _on(system: str, field: str, value: Any) -> dict[str, Any]:
    return {"spec.os": {"name": system}, field: value}


def _fields(*expressions: dict[str, Any]) -> dict[str, Any]:
    key = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    return {key: {"nodeSelectorTerms": [{"matchFields": list(expressions)}]}}


REFUSABLE: list[dict[str, Any]] = [
    # Sources of volumes.
    volume(iscsi={**_ISCSI, "iqn": "iqn.2015-02.example.com"}),
    volume(iscsi={**_ISCSI, "iqn": "2015-02.example.com:test"}),
    volume(iscsi={**_ISCSI, "iqn": "eui.0123456789ABCDEFGHIJ"}),
    volume(iscsi={**_ISCSI, "targetPortal": ""}),
    volume(iscsi={**_ISCSI, "lun": 256}),
    volume(iscsi={**_ISCSI, "lun": -1}),
    volume(iscsi={**_ISCSI, "initiatorName": "2015-02.example.com:init"}),
    volume(iscsi={**_ISCSI, "chapAuthSession": True}),
    volume(fc={}),
    volume(fc={"targetWWNs": ["wwn"]}),
    volume(fc={"targetWWNs": ["wwn"], "lun": 256}),
    volume(fc={"targetWWNs": ["wwn"], "lun": 1, "wwids": ["a"]}),
    volume(flocker={}),
    volume(flocker={"datasetName": "a", "datasetUUID": "b"}),
    volume(flocker={"datasetName": "a/b"}),
    volume(awsElasticBlockStore={"volumeID": ""}),
    volume(awsElasticBlockStore={"volumeID": "a", "partition": -1}),
    volume(gcePersistentDisk={"pdName": ""}),
    volume(gcePersistentDisk={"pdName": "a", "partition": 256}),
    volume(azureDisk={"diskName": "a", "diskURI": "blob", "kind": "Managed"}),
    volume(azureDisk={"diskName": "a", "diskURI": "/subscriptions/a", "cachingMode": "Some"}),
    volume(azureDisk={"diskName": "a", "diskURI": "blob", "kind": "Dedicated"}),
    volume(azureFile={"secretName": "s", "shareName": ""}),
    volume(cephfs={"monitors": []}),
    volume(rbd={"monitors": [], "image": "i"}),
    volume(rbd={"monitors": ["m"], "image": ""}),
    volume(cinder={"volumeID": ""}),
    volume(glusterfs={"endpoints": "", "path": "p"}),
    volume(quobyte={"registry": "", "volume": "v"}),
    volume(quobyte={"registry": "r7861", "volume": "v"}),
    volume(quobyte={"registry": "r:7861", "volume": "v", "tenant": "x" * 65}),
    volume(storageos={"volumeName": ""}),
    volume(storageos={"volumeName": "-a"}),
    volume(scaleIO={"gateway": "", "system": "s", "volumeName": "v", "secretRef": {"name": "n"}}),
    volume(vsphereVolume={"volumePath": ""}),
    volume(photonPersistentDisk={"pdID": ""}),
    volume(portworxVolume={"volumeID": ""}),
    volume(csi={"driver": ""}),
    volume(csi={"driver": "a b"}),
    volume(csi={"driver": "a.b", "nodePublishSecretRef": {"name": ""}}),
    volume(csi={"driver": "x" * 64}),
    volume(flexVolume={"driver": ""}),
    volume(nfs={"server": "s", "path": ""}),
    volume(gitRepo={"repository": ""}),
    volume(gitRepo={"repository": "r", "directory": "/a"}),
    volume(gitRepo={"repository": "r", "directory": "../a"}),
    volume(
        downwardAPI={
            "items": [
                {
                    "path": "a",
                    "fieldRef": {"fieldPath": "metadata.name"},
                    "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"},
                }
            ]
        }
    ),
    volume(
        downwardAPI={
            "items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.name"}, "mode": 1000}]
        }
    ),
    volume(
        downwardAPI={
            "items": [
                {"path": "a", "resourceFieldRef": {"containerName": "main", "resource": "a.b"}}
            ]
        }
    ),
    projected({"serviceAccountToken": {"path": ""}}),
    projected({"serviceAccountToken": {"path": "p", "expirationSeconds": 599}}),
    projected({"serviceAccountToken": {"path": "p", "expirationSeconds": (1 << 32) + 1}}),
    projected({"serviceAccountToken": {"path": "../p"}}),
    projected({"clusterTrustBundle": {"path": "p"}}),
    projected({"clusterTrustBundle": {"path": "p", "name": "n", "signerName": "a.b/c"}}),
    projected({"clusterTrustBundle": {"path": "", "name": "n"}}),
    projected({"podCertificate": {"signerName": "a.b/c", "keyType": "ED25519"}}),
    projected(
        {"podCertificate": {"signerName": "a", "keyType": "ED25519", "credentialBundlePath": "p"}}
    ),
    projected(
        {"podCertificate": {"signerName": "a.b/c", "keyType": "DSA", "credentialBundlePath": "p"}}
    ),
    volume(image={"reference": "", "pullPolicy": "Always"}),
    volume(image={"reference": "a", "pullPolicy": "Often"}),
    {
        V: {"name": "v", "image": {"reference": "a"}},
        f"{C}volumeMounts.0": {**_DEVICES, "name": "w", "mountPath": "/m"},
    },
    # Mounts and devices.
    {**_BLOCK, f"{C}volumeDevices": [_DEVICES, {"name": "v", "devicePath": "/dev/y"}]},
    {**_BLOCK, f"{C}volumeDevices.0": {"name": "v", "devicePath": ""}},
    {**_BLOCK, f"{C}volumeDevices.0": {"name": "v", "devicePath": "/dev/../x"}},
    {
        **_BLOCK,
        "spec.volumes.1": {"name": "w", "emptyDir": {}},
        f"{C}volumeMounts.0": {"name": "w", "mountPath": "/dev/x"},
        f"{C}volumeDevices.0": _DEVICES,
    },
    mount(name=""),
    mount(recursiveReadOnly="Enabled"),
    mount(recursiveReadOnly="Often", readOnly=True),
    mount(recursiveReadOnly="Enabled", readOnly=True, mountPropagation="HostToContainer"),
    # Variables, resources.
    source(fieldRef={"fieldPath": "metadata.uid['a']"}),
    source(fieldRef={"fieldPath": "metadata.annotations"}),
    source(fieldRef={"fieldPath": "metadata.labels['']"}),
    source(fieldRef={"fieldPath": "metadata.resourceVersion"}),
    source(fileKeyRef={"volumeName": "", "path": "p", "key": "k"}),
    {V: EMPTY, **source(fileKeyRef={"volumeName": "v", "path": "../p", "key": "k"})},
    {V: EMPTY, **source(fileKeyRef={"volumeName": "v", "path": "p", "key": "="})},
    source(fileKeyRef={"volumeName": "absent", "path": "p", "key": "k"}),
    resources(limits={"disk": "10G"}),
    resources(limits={"attachable-volumes-aws-ebs": 10}),
    resources(requests={"hugepages-2Mi": "2Mi", "memory": "1Gi"}),
    resources(
        requests={"hugepages-2Mi": "2Mi", "cpu": 1}, limits={"hugepages-2Mi": "4Mi", "cpu": 1}
    ),
    resources(limits={"hugepages-2Mi": "2500m", "cpu": 1}),
    resources(limits={"ephemeral-storage": "-1"}),
    resources(claims=[{"name": "a"}]),
    {
        "spec.resourceClaims.0": {"name": "a", "resourceClaimName": "b"},
        f"{C}resources": {"claims": [{"name": "a"}, {"name": "a"}]},
    },
    {f"{C}resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartNotRequired"}]},
    {f"{C}resizePolicy": [{"resourceName": "disk", "restartPolicy": "NotRequired"}]},
    {f"{C}resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}] * 2},
    # Hooks and probes.
    {_HOOK: {"preStop": {"exec": {}}}},
    {_HOOK: {"preStop": {"httpGet": {"path": "/", "port": 0}}}},
    {_HOOK: {"preStop": {"tcpSocket": {"port": 0}}}},
    {_HOOK: {"preStop": {"httpGet": {"path": "/", "port": 80, "scheme": "gopher"}}}},
    {_HOOK: {"preStop": {"sleep": {"seconds": -1}}}},
    {_HOOK: {"preStop": {"sleep": {"seconds": 31}}}},
    {_HOOK: {"stopSignal": "SIGUSR1"}},
    {"spec.os": {"name": "linux"}, _HOOK: {"stopSignal": "SIGNONE"}},
    {"spec.os": {"name": "windows"}, _HOOK: {"stopSignal": "SIGUSR1"}},
    probe("readinessProbe", terminationGracePeriodSeconds=10),
    probe("livenessProbe", terminationGracePeriodSeconds=-1),
    probe("livenessProbe", bare=True, grpc={"port": 0}),
    probe("livenessProbe", bare=True, grpc={}),
    probe("startupProbe", failureThreshold=-1),
    # Containers.
    {f"{C}restartPolicy": "OnFailuree"},
    {f"{C}restartPolicyRules": [{"action": "Restart"}]},
    {f"{C}restartPolicy": "Never", f"{C}restartPolicyRules": [{"action": "Stop"}]},
    {
        f"{C}restartPolicy": "Never",
        f"{C}restartPolicyRules": [
            {"action": "Restart", "exitCodes": {"operator": "Eq", "values": [1]}}
        ],
    },
    first(restartPolicy="Sometimes"),
    first(name="side", restartPolicy="Always", ports=[{"containerPort": 0}]),
    {**first(name="other"), **second()},
    {"spec.initContainers": [{"name": "a", "image": "i"}, {"name": "a", "image": "i"}]},
    {f"{C}ports": [{"containerPort": 1, "hostPort": 2, "protocol": "UDP"}] * 2},
    {f"{C}ports.0": {"containerPort": 80, "protocol": "tcp"}},
    # Who runs it.
    {_WINDOWS: {"privileged": True, "allowPrivilegeEscalation": False}},
    {_WINDOWS: {"procMount": "Unmasked"}},
    _windows(gmsaCredentialSpecName="not a name"),
    _windows(gmsaCredentialSpec=""),
    _windows(gmsaCredentialSpec="x" * ((64 << 10) + 1)),
    _windows(runAsUserName=""),
    _windows(runAsUserName="a" * 21 * 20),
    _windows(runAsUserName="bad/user"),
    _windows(runAsUserName="a\\b\\c"),
    _windows(runAsUserName="\u0007bell"),
    {_WINDOWS: {"windowsOptions": {"hostProcess": True}}},
    {"spec.securityContext": {"supplementalGroupsPolicy": "Some"}},
    {"spec.securityContext": {"seLinuxChangePolicy": "Some"}},
    {"spec.securityContext": {"appArmorProfile": {"type": "Localhost"}}},
    {"spec.securityContext": {"appArmorProfile": {"type": ""}}},
    {
        "spec.hostNetwork": True,
        "spec.securityContext": {"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]},
    },
    {
        "spec.hostIPC": True,
        "spec.securityContext": {"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}]},
    },
    _on("windows", "spec.hostPID", True),
    _on("windows", "spec.hostIPC", True),
    _on("windows", "spec.securityContext", {"fsGroup": 1}),
    _on("windows", "spec.securityContext", {"runAsUser": 1}),
    _on("windows", "spec.securityContext", {"seLinuxOptions": {"role": "a"}}),
    _on("windows", "spec.securityContext", {"seccompProfile": {"type": "RuntimeDefault"}}),
    _on("windows", "spec.shareProcessNamespace", True),
    _on("windows", _WINDOWS, {"capabilities": {"add": ["A"]}}),
    _on("windows", _WINDOWS, {"readOnlyRootFilesystem": True}),
    _on("windows", _WINDOWS, {"privileged": True}),
    _on("linux", "spec.securityContext", {"windowsOptions": {"runAsUserName": "a"}}),
    _on("linux", _WINDOWS, {"windowsOptions": {"runAsUserName": "a"}}),
    {"spec.os": {"name": "dummyOS"}},
    # Placement.
    _fields({"key": "metadata.labels", "operator": "In", "values": ["a"]}),
    _fields({"key": "metadata.name", "operator": "Exists"}),
    _fields({"key": "metadata.name", "operator": "In", "values": ["a", "b"]}),
    affinity("podAffinity", "preferred", {"weight": 101, "podAffinityTerm": _TERM}),
    affinity("podAffinity", "required", {"topologyKey": "a", "matchLabelKeys": ["a"]}),
    affinity(
        "podAffinity",
        "required",
        {**_TERM, "labelSelector": {}, "matchLabelKeys": ["a"], "mismatchLabelKeys": ["a"]},
    ),
    affinity(
        "podAffinity",
        "required",
        {
            **_TERM,
            "labelSelector": {"matchLabels": {"a": "b"}},
            "matchLabelKeys": ["a"],
        },
    ),
    spread(minDomains=0),
    spread(minDomains=2, whenUnsatisfiable="ScheduleAnyway"),
    spread(nodeAffinityPolicy="Some"),
    spread(matchLabelKeys=["a"]),
    spread(labelSelector={"matchLabels": {"a": "b"}}, matchLabelKeys=["a"]),
    spread(labelSelector={"matchLabels": {"a b": "c"}}),
    {"spec.schedulingGates": [{"name": "a.b/c"}, {"name": "a.b/c"}]},
    {"spec.schedulingGates": [{"name": "a b"}]},
    {"spec.overhead": {"cpu": "-1"}},
    {"spec.overhead": {"disk": "1"}},
    # The rest.
    {"spec.activeDeadlineSeconds": 0},
    {"spec.activeDeadlineSeconds": 1 << 31},
    {"spec.hostAliases": [{"ip": "a", "hostnames": ["b"]}]},
    {"spec.hostAliases": [{"ip": "1.2.3.4", "hostnames": ["@#"]}]},
    {"spec.ephemeralContainers": [{"name": "e", "image": "i"}]},
    {"spec.dnsConfig": {"searches": ["x"] * 33}},
    {"spec.dnsConfig": {"options": [{"name": ""}]}},
    {"spec.resourceClaims": [{"name": "a"}]},
    {"spec.resourceClaims": [{"name": "A", "resourceClaimName": "b"}]},
    {
        "spec.resourceClaims": [
            {"name": "a", "resourceClaimName": "b", "resourceClaimTemplateName": "c"}
        ]
    },
    {"spec.resources": {"limits": {"nvidia.com/gpu": "1"}}},
    {"spec.resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}},
    {"spec.resources": {"requests": {"cpu": "1"}}, f"{C}resources": {"requests": {"cpu": "2"}}},
    {"spec.resources": {"limits": {"cpu": "1"}}, f"{C}resources": {"limits": {"cpu": "2"}}},
    {"spec.resources": {"claims": [{"name": "a"}]}},
    {"spec.hostnameOverride": "A_B"},
    {"spec.hostnameOverride": "x" * 65},
    {"spec.hostnameOverride": "a", "spec.setHostnameAsFQDN": True},
    {"spec.hostnameOverride": "a", "spec.hostNetwork": True},
    {"spec.hostUsers": False, "spec.hostNetwork": True},
    {"metadata.annotations": {"container.apparmor.security.beta.kubernetes.io/main": "bad"}},
    {
        "metadata.annotations": {
            "container.apparmor.security.beta.kubernetes.io/absent": "unconfined"
        }
    },
    {"metadata.annotations": {"controller.kubernetes.io/pod-deletion-cost": "a"}},
    {"metadata.annotations": {"controller.kubernetes.io/pod-deletion-cost": "01"}},
    {"metadata.annotations": {"kubernetes.io/config.mirror": "a"}},
]

_APPARMOR = "container.apparmor.security.beta.kubernetes.io/main"
GOOD: list[dict[str, Any]] = [
    volume(iscsi=_ISCSI),
    volume(iscsi={**_ISCSI, "iqn": "eui.0123456789ABCDEF", "lun": 255}),
    volume(iscsi={**_ISCSI, "iqn": "naa.0123456789ABCDEF0123456789ABCDEF"}),
    volume(
        iscsi={
            **_ISCSI,
            "initiatorName": "iqn.2015-02.Example.com:init",
            "chapAuthSession": True,
            "secretRef": {"name": "s"},
        }
    ),
    volume(fc={"targetWWNs": ["wwn"], "lun": 1}),
    volume(fc={"wwids": ["wwid"]}),
    volume(flocker={"datasetName": "a"}),
    volume(flocker={"datasetUUID": "a/b"}),
    volume(awsElasticBlockStore={"volumeID": "a", "partition": 1}),
    volume(gcePersistentDisk={"pdName": "a", "partition": 255}),
    volume(azureDisk={"diskName": "a", "diskURI": "https://blob/vhds/a.vhd"}),
    volume(azureDisk={"diskName": "a", "diskURI": "/subscriptions/a", "kind": "Managed"}),
    volume(quobyte={"registry": "r:7861,s:7861", "volume": "v", "tenant": "t"}),
    volume(storageos={"volumeName": "a", "volumeNamespace": "b"}),
    volume(scaleIO={"gateway": "g", "system": "s", "volumeName": "v", "secretRef": {"name": "n"}}),
    volume(vsphereVolume={"volumePath": "p"}),
    volume(photonPersistentDisk={"pdID": "p"}),
    volume(portworxVolume={"volumeID": "p"}),
    volume(csi={"driver": "Example.com"}),
    volume(csi={"driver": "a.b", "nodePublishSecretRef": {"name": "s"}, "readOnly": True}),
    volume(flexVolume={"driver": "a/b"}),
    volume(rbd={"monitors": ["m"], "image": "i"}),
    volume(cephfs={"monitors": ["m"]}),
    volume(cinder={"volumeID": "v"}),
    volume(glusterfs={"endpoints": "e", "path": "p"}),
    volume(gitRepo={"repository": "r", "directory": "."}),
    projected({"serviceAccountToken": {"path": "p", "expirationSeconds": 600}}),
    {**_BLOCK, f"{C}volumeDevices.0": _DEVICES},
    _windows(gmsaCredentialSpecName="a.b", gmsaCredentialSpec="{}"),
    *(
        _windows(runAsUserName=user)
        for user in ("a", "A\\b", "NT AUTHORITY\\SYSTEM", "a.b.c\\d e", "ContainerUser", "a_b")
    ),
    {
        "spec.hostNetwork": True,
        "spec.securityContext": {"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}]},
    },
    {"spec.hostIPC": True, "spec.hostPID": True},
    _on("linux", "spec.securityContext", {"fsGroup": 1}),
    _on("windows", "spec.hostNetwork", True),
    _on("windows", "spec.securityContext", {"windowsOptions": {"runAsUserName": "a"}}),
    {"metadata.annotations": {_APPARMOR: "runtime/default"}},
    {"metadata.annotations": {_APPARMOR: "localhost/a"}},
    {"metadata.annotations": {_APPARMOR: "unconfined"}},
    *(
        {"metadata.annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}}
        for cost in ("0", "-1", "2147483647", "100")
    ),
    {
        "spec.resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1", "memory": "1Gi"}},
        f"{C}resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}},
    },
    {"spec.hostnameOverride": "a.b"},
    {"spec.os": {"name": "linux"}, _HOOK: {"stopSignal": "SIGRTMIN+15"}},
    {"spec.os": {"name": "windows"}, _HOOK: {"stopSignal": "SIGKILL"}},
    {V: EMPTY, **source(fileKeyRef={"volumeName": "v", "path": "a/p", "key": "K"})},
    spread(labelSelector={"matchLabels": {"a": "b"}}, matchLabelKeys=["c"]),
    projected({"clusterTrustBundle": {"path": "p", "name": "n"}}),
    projected({"clusterTrustBundle": {"path": "p", "signerName": "a.b/c", "labelSelector": {}}}),
]
"""Their neighbours, which are to be taken."""

LATER = {
    "sysctls": "an older server leaves it to the node, which does not start the pod",
    "'../p'": "an older server leaves it to the node, which does not write the token",
    "pod-deletion-cost": "an older server has no such annotation",
    "{'matchLabels': {'a b': 'c'}}": "an older server spreads by labels that no pod can have",
}
"""Parts of the names of templates that are refused by newer servers, and not by 1.20; why."""
