"""Defaults of pods, as Kubernetes sets them (`SetDefaults_Pod` and others).

https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/apis/core/v1/defaults.go
"""

from __future__ import annotations

from typing import Any

from trainyard.schema.rules.pod_spec_rules import GRACE_SECONDS
from trainyard.schema.rules.probe_rules import HOOKS, PROBES

Object = dict[str, Any]
_SPEC = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": GRACE_SECONDS,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}
TERMINATION_MESSAGE_PATH = "/dev/termination-log"
"""Payloads say it too, since they import nothing of ours; `test_payloads` compares them."""
_CONTAINER = {
    "terminationMessagePath": TERMINATION_MESSAGE_PATH,
    "terminationMessagePolicy": "File",
}
_PROBE = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_HTTP = {"path": "/", "scheme": "HTTP"}
_MODE = 0o644
_TOKEN_SECONDS = 3600
_WITH_MODE = ("configMap", "secret", "downwardAPI", "projected")


def complete(spec: Object) -> None:
    """Fill in fields that the spec of a pod leaves out or empty."""
    _fill(spec, _SPEC)
    spec.setdefault("securityContext", {})
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = account  # the field's older name
    for each in (*(spec.get("initContainers") or ()), *spec["containers"]):
        of_container(each)
        if spec.get("hostNetwork"):
            for port in each.get("ports") or ():
                port["hostPort"] = port.get("hostPort") or port["containerPort"]
    for volume in spec.get("volumes") or ():
        _volume(volume)


def _fill(obj: Object, defaults: Object) -> None:
    for field, value in defaults.items():
        if obj.get(field) in (None, ""):
            obj[field] = value


def of_container(container: Object) -> None:
    """Fill in fields that a container of any type leaves out."""
    _fill(container, _CONTAINER)
    _fill(container, {"imagePullPolicy": _pull_policy(container.get("image") or "")})
    resources = container.setdefault("resources", {})
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}
    for port in container.get("ports") or ():
        _fill(port, {"protocol": "TCP"})
    for variable in container.get("env") or ():
        if source := variable.get("valueFrom"):
            _reference(source.get("fieldRef"))
    for name in PROBES:
        if (probe := container.get(name)) is not None:
            for field, default in _PROBE.items():
                probe[field] = probe.get(field) or default
            _action(probe)
    for name in HOOKS:
        _action((container.get("lifecycle") or {}).get(name) or {})


def _pull_policy(image: str) -> str:
    """Always for images without a tag or with `latest`, which may change."""
    name = image.rpartition("/")[2]
    tag = name.partition(":")[2]
    return "Always" if "@" not in name and tag in ("", "latest") else "IfNotPresent"


def _action(action: Object) -> None:
    if (http := action.get("httpGet")) is not None:
        _fill(http, _HTTP)


def _reference(reference: Object | None) -> None:
    if reference is not None:
        _fill(reference, {"apiVersion": "v1"})


def _volume(volume: Object) -> None:
    if all(value is None for field, value in volume.items() if field != "name"):
        volume["emptyDir"] = {}
    for kind in _WITH_MODE:
        if (source := volume.get(kind)) is not None:
            source.setdefault("defaultMode", _MODE)
    for part in [volume, *((volume.get("projected") or {}).get("sources") or ())]:
        for item in (part.get("downwardAPI") or {}).get("items") or ():
            _reference(item.get("fieldRef"))
        if (token := part.get("serviceAccountToken")) is not None:
            token.setdefault("expirationSeconds", _TOKEN_SECONDS)
    if (host := volume.get("hostPath")) is not None:
        host.setdefault("type", "")
