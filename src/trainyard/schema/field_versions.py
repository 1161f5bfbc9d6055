"""Which fields of pods and of the core kinds a Kubernetes of some version has, and honours.

A version is its minor number: 27 is Kubernetes 1.27. The versions in which fields came are in
``data/versions.json``, written by ``tools/pod_versions.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path as File
from typing import Any

from trainyard.schema.dataclass import dataclass
from trainyard.schema.kubernetes_schemas import definitions
from trainyard.schema.problems import Path

_OFF = 1 << 10
GATES: Mapping[str, tuple[str, int]] = {
    "ClusterTrustBundleProjection.user": ("AtomicWriteVolumeUserFields", _OFF),
    "ConfigMapVolumeSource.defaultUser": ("AtomicWriteVolumeUserFields", _OFF),
    "Container.resizePolicy": ("InPlacePodVerticalScaling", 33),
    "Container.restartPolicy": ("SidecarContainers", 29),
    "Container.restartPolicyRules": ("ContainerRestartRules", 35),
    "DownwardAPIVolumeFile.user": ("AtomicWriteVolumeUserFields", _OFF),
    "DownwardAPIVolumeSource.defaultUser": ("AtomicWriteVolumeUserFields", _OFF),
    "EmptyDirVolumeSource.mode": ("EmptyDirVolumeMode", _OFF),
    "EnvVarSource.fileKeyRef": ("EnvFiles", 35),
    "KeyToPath.user": ("AtomicWriteVolumeUserFields", _OFF),
    "Lifecycle.stopSignal": ("ContainerStopSignals", _OFF),
    "LifecycleHandler.sleep": ("PodLifecycleSleepAction", 30),
    "PersistentVolumeClaimSpec.dataSourceRef": ("AnyVolumeDataSource", 24),
    "PersistentVolumeClaimSpec.volumeAttributesClassName": ("VolumeAttributesClass", 34),
    "PodAffinityTerm.matchLabelKeys": ("MatchLabelKeysInPodAffinity", 31),
    "PodAffinityTerm.mismatchLabelKeys": ("MatchLabelKeysInPodAffinity", 31),
    "PodAffinityTerm.namespaceSelector": ("PodAffinityNamespaceSelector", 22),
    "PodCertificateProjection.user": ("AtomicWriteVolumeUserFields", _OFF),
    "PodSecurityContext.seLinuxChangePolicy": ("SELinuxChangePolicy", 33),
    "PodSecurityContext.supplementalGroupsPolicy": ("SupplementalGroupsPolicy", 33),
    "PodSpec.hostUsers": ("UserNamespacesSupport", 33),
    "PodSpec.hostnameOverride": ("HostnameOverride", 35),
    "PodSpec.os": ("IdentifyPodOS", 24),
    "PodSpec.resourceClaims": ("DynamicResourceAllocation", 34),
    "PodSpec.resources": ("PodLevelResources", 34),
    "PodSpec.schedulingGates": ("PodSchedulingReadiness", 27),
    "PodSpec.schedulingGroup": ("GenericWorkload", _OFF),
    "Probe.grpc": ("GRPCContainerProbe", 24),
    "Probe.terminationGracePeriodSeconds": ("ProbeTerminationGracePeriod", 25),
    "ProjectedVolumeSource.defaultUser": ("AtomicWriteVolumeUserFields", _OFF),
    "ResourceRequirements.claims": ("DynamicResourceAllocation", 34),
    "SecretVolumeSource.defaultUser": ("AtomicWriteVolumeUserFields", _OFF),
    "SecurityContext.procMount": ("ProcMountType", 33),
    "ServiceAccountTokenProjection.user": ("AtomicWriteVolumeUserFields", _OFF),
    "ServiceSpec.allocateLoadBalancerNodePorts": ("ServiceLBNodePortControl", 22),
    "ServiceSpec.internalTrafficPolicy": ("ServiceInternalTrafficPolicy", 22),
    "ServiceSpec.ipFamilies": ("IPv6DualStack", 21),
    "ServiceSpec.ipFamilyPolicy": ("IPv6DualStack", 21),
    "ServiceSpec.loadBalancerClass": ("ServiceLoadBalancerClass", 22),
    "ServiceSpec.trafficDistribution": ("ServiceTrafficDistribution", 31),
    "TopologySpreadConstraint.matchLabelKeys": ("MatchLabelKeysInPodTopologySpread", 27),
    "TopologySpreadConstraint.minDomains": ("MinDomainsInPodTopologySpread", 27),
    "TopologySpreadConstraint.nodeAffinityPolicy": ("NodeInclusionPolicyInPodTopologySpread", 26),
    "TopologySpreadConstraint.nodeTaintsPolicy": ("NodeInclusionPolicyInPodTopologySpread", 26),
    "TypedObjectReference.namespace": ("CrossNamespaceVolumeDataSource", _OFF),
    "Volume.ephemeral": ("GenericEphemeralVolume", 21),
    "Volume.image": ("ImageVolume", 35),
    "VolumeMount.bindMountOptions": ("VolumeBindMountOptions", _OFF),
    "VolumeMount.recursiveReadOnly": ("RecursiveReadOnlyMounts", 31),
    "VolumeProjection.clusterTrustBundle": ("ClusterTrustBundleProjection", _OFF),
    "VolumeProjection.podCertificate": ("PodCertificateRequest", _OFF),
    "WindowsSecurityContextOptions.hostProcess": ("WindowsHostProcessContainers", 23),
}
"""Fields that servers drop while a feature gate is off, and since when it is on by default; the
newest version whose defaults were looked at is 1.35.
https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates/"""

_DEFAULTS = {"SecurityContext.procMount": "Default"}
"""The default of such a field: dropping that value changes nothing."""


@dataclass(frozen=True, slots=True)
class UnsupportedField:
    """A field that is set, and that a server drops.

    ``since`` is the version that the field came with, or the oldest known one; ``gate`` is
    the feature gate that guards it, or "", and ``on`` the version since which that is on by
    default, None where it is off in all.
    """

    path: Path
    owner: str
    since: int
    gate: str
    on: int | None

    @property
    def field(self) -> str:
        """The name of the field."""
        return str(self.path[-1])


@cache
def _data() -> Mapping[str, Any]:
    text = (File(__file__).parent / "data" / "versions.json").read_bytes()
    found: dict[str, Any] = json.loads(text)
    return found


def known_versions() -> tuple[int, int]:
    """The oldest and the newest version of which the fields are known."""
    oldest, newest = _data()["versions"]
    return int(oldest), int(newest)


def fields_added_since_oldest() -> set[str]:
    """The fields that came after the oldest version, as ``Definition.field``."""
    return set(_data()["fields"])


def first_version(owner: str, field: str) -> int:
    """The version that a field came with, or the oldest known one."""
    return int(_data()["fields"].get(f"{owner}.{field}", known_versions()[0]))


def unsupported_fields(
    value: Any, definition: str, version: int, file: str
) -> list[UnsupportedField]:
    """The outermost fields of a value that a server of a version drops.

    `definition` is the value's, in `data/<file>.json`.
    """
    found = []
    for path, owner, part in parts_with_definitions(value, definition, file):
        for field in [field for field, given in part.items() if given is not None]:
            name = f"{owner}.{field}"
            since = first_version(owner, field)
            gate, on = GATES.get(name, ("", since))
            if version < max(since, on) and (version < since or part[field] != _DEFAULTS.get(name)):
                place = (*path, field)
                found.append(
                    UnsupportedField(place, owner, since, gate, None if on == _OFF else on)
                )
    places = {gap.path for gap in found}
    return [
        gap
        for gap in found
        if not any(gap.path[:length] in places for length in range(1, len(gap.path)))
    ]


def parts_with_definitions(
    value: Any, definition: str, file: str
) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """Every mapping in a value that has a definition: where it is, the definition's name, and the
    mapping itself without what the definition does not know."""
    of = definitions(file)
    pending: list[tuple[Path, Any, Mapping[str, Any]]] = [((), value, {"$ref": definition})]
    while pending:
        path, inner, schema = pending.pop()
        name = schema.get("$ref", "")
        schema = of[name] if name else schema
        if isinstance(inner, list):
            items = schema.get("items", {})
            pending += [((*path, index), each, items) for index, each in enumerate(inner)]
        elif isinstance(inner, dict) and "properties" in schema:
            fields = schema["properties"]
            part = {key: each for key, each in inner.items() if key in fields}
            if name:
                yield path, name, part
            pending += [((*path, key), each, fields[key]) for key, each in part.items()]
