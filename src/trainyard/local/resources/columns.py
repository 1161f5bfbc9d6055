"""The columns of built-in kinds: those of kube-apiserver's printers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.schema.times import age

Object = dict[str, Any]
Cell = Callable[[Object], Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `priority` above 0 shows only with `-o wide`."""

    name: str
    cell: Cell
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""


def _path(path: str, default: Any = "<none>") -> Cell:
    keys = path.split(".")

    def cell(obj: Object) -> Any:
        value: Any = obj
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return default if value is None or value == "" else value

    return cell


def _age(obj: Object) -> str:
    return age(obj["metadata"].get("creationTimestamp"))


NAME = Column("Name", lambda obj: obj["metadata"]["name"], format="name")
AGE = Column("Age", _age)


def _containers(pod: Object) -> Sequence[Object]:
    statuses: Sequence[Object] = pod.get("status", {}).get("containerStatuses") or ()
    return statuses


def _ready(pod: Object) -> str:
    total = len(pod.get("spec", {}).get("containers") or ())
    return f"{sum(bool(status.get('ready')) for status in _containers(pod))}/{total}"


def _pod_status(pod: Object) -> str:
    """The word of `printPod`: the most telling container reason, else the phase."""
    status = pod.get("status", {})
    word = status.get("reason") or status.get("phase") or "Unknown"
    initial = _initial_word(pod)
    if initial is not None:
        word = initial
    else:
        for container in reversed(_containers(pod)):
            state = container.get("state") or {}
            if reason := (state.get("waiting") or {}).get("reason"):
                word = reason
            elif "terminated" in state:
                word = _terminated_word(state["terminated"])
        if word == "Completed" and any(each.get("ready") for each in _containers(pod)):
            word = "Running"
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return str(word)


def _initial_word(pod: Object) -> str | None:
    statuses = pod.get("status", {}).get("initContainerStatuses") or ()
    for number, container in enumerate(statuses):
        state = container.get("state") or {}
        terminated = state.get("terminated")
        if (terminated and terminated.get("exitCode") == 0) or container.get("started"):
            continue
        if terminated:
            return f"Init:{_terminated_word(terminated)}"
        reason = (state.get("waiting") or {}).get("reason")
        if reason and reason != "PodInitializing":
            return f"Init:{reason}"
        return f"Init:{number}/{len(statuses)}"
    return None


def _terminated_word(terminated: Object) -> str:
    if reason := terminated.get("reason"):
        return str(reason)
    if signal := terminated.get("signal"):
        return f"Signal:{signal}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _restarts(pod: Object) -> str:
    return str(sum(int(status.get("restartCount", 0)) for status in _containers(pod)))


def _service_ports(service: Object) -> str:
    ports = service.get("spec", {}).get("ports") or ()
    texts = [
        f"{port.get('port')}{':' if 'nodePort' in port else ''}{port.get('nodePort', '')}"
        f"/{port.get('protocol', 'TCP')}"
        for port in ports
    ]
    return ",".join(texts) or "<none>"


def _selector(service: Object) -> str:
    pairs = (service.get("spec", {}).get("selector") or {}).items()
    return ",".join(f"{key}={value}" for key, value in pairs) or "<none>"


def _node_status(node: Object) -> str:
    conditions = node.get("status", {}).get("conditions") or ()
    ready = {each["status"] for each in conditions if each.get("type") == "Ready"}
    words = ["Ready" if "True" in ready else "NotReady" if ready else "Unknown"]
    if node.get("spec", {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(node: Object) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    roles = [label[len(prefix) :] for label in labels if label.startswith(prefix)]
    return ",".join(sorted(roles)) or "<none>"


def _node_address(node: Object) -> str:
    addresses = node.get("status", {}).get("addresses") or ()
    internal = [each["address"] for each in addresses if each.get("type") == "InternalIP"]
    return internal[0] if internal else "<none>"


def _event_object(event: Object) -> str:
    about = event.get("involvedObject") or event.get("regarding") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def _event_age(event: Object) -> str:
    last = (
        (event.get("series") or {}).get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("deprecatedLastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
    )
    return age(last)


def _event_source(event: Object) -> str:
    source = event.get("source") or event.get("deprecatedSource") or {}
    return str(source.get("component") or event.get("reportingComponent") or "")


def _claim_modes(claim: Object) -> str:
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX"}
    modes = claim.get("status", {}).get("accessModes") or claim["spec"].get("accessModes") or ()
    return ",".join(short.get(mode, mode) for mode in modes)


def _endpoints(obj: Object) -> str:
    pairs = [
        f"{address.get('ip')}:{port.get('port')}"
        for subset in obj.get("subsets") or ()
        for address in subset.get("addresses") or ()
        for port in subset.get("ports") or ()
    ]
    return ",".join(pairs) or "<none>"


_EVENT_COLUMNS = (
    Column("Last Seen", _event_age),
    Column("Type", _path("type", "")),
    Column("Reason", _path("reason", "")),
    Column("Object", _event_object),
    Column("Subobject", _path("involvedObject.fieldPath", ""), priority=1),
    Column("Source", _event_source, priority=1),
    Column("Message", lambda event: str(event.get("message") or event.get("note") or "").strip()),
    Column("Count", _path("count", 1), priority=1, type="integer"),
    Column("Name", NAME.cell, format="name", priority=1),
)

COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "pods": (
        NAME,
        Column("Ready", _ready),
        Column("Status", _pod_status),
        Column("Restarts", _restarts),
        AGE,
        Column("IP", _path("status.podIP"), priority=1),
        Column("Node", _path("spec.nodeName"), priority=1),
        Column("Nominated Node", _path("status.nominatedNodeName"), priority=1),
        Column("Readiness Gates", lambda _: "<none>", priority=1),
    ),
    "services": (
        NAME,
        Column("Type", _path("spec.type", "ClusterIP")),
        Column("Cluster-IP", _path("spec.clusterIP")),
        Column("External-IP", lambda _: "<none>"),
        Column("Port(s)", _service_ports),
        AGE,
        Column("Selector", _selector, priority=1),
    ),
    "nodes": (
        NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        AGE,
        Column("Version", _path("status.nodeInfo.kubeletVersion", "")),
        Column("Internal-IP", _node_address, priority=1),
        Column("OS-Image", _path("status.nodeInfo.osImage", "<unknown>"), priority=1),
        Column("Kernel-Version", _path("status.nodeInfo.kernelVersion", "<unknown>"), priority=1),
    ),
    "namespaces": (NAME, Column("Status", _path("status.phase", "")), AGE),
    "endpoints": (NAME, Column("Endpoints", _endpoints), AGE),
    "secrets": (
        NAME,
        Column("Type", _path("type", "Opaque")),
        Column("Data", lambda obj: len(obj.get("data") or ()), type="integer"),
        AGE,
    ),
    "configmaps": (
        NAME,
        Column(
            "Data",
            lambda obj: len(obj.get("data") or ()) + len(obj.get("binaryData") or ()),
            type="integer",
        ),
        AGE,
    ),
    "events": _EVENT_COLUMNS,
    "events.events.k8s.io": _EVENT_COLUMNS,
    "persistentvolumeclaims": (
        NAME,
        Column("Status", _path("status.phase", "")),
        Column("Volume", _path("spec.volumeName", "")),
        Column("Capacity", _path("status.capacity.storage", "")),
        Column("Access Modes", _claim_modes),
        Column("StorageClass", _path("spec.storageClassName", "")),
        AGE,
        Column("VolumeMode", _path("spec.volumeMode", ""), priority=1),
    ),
    "serviceaccounts": (
        NAME,
        Column("Secrets", lambda obj: len(obj.get("secrets") or ()), type="integer"),
        AGE,
    ),
    "leases.coordination.k8s.io": (NAME, Column("Holder", _path("spec.holderIdentity", "")), AGE),
    "customresourcedefinitions.apiextensions.k8s.io": (
        NAME,
        Column("Created At", _path("metadata.creationTimestamp")),
    ),
}
