"""Where the embedded API server answers otherwise than a real one, and why."""

from __future__ import annotations

_LATER = "newer servers do as we do"
_NO_CLASSES = "there are no such classes here, so the name is judged as a name"
_WORDS = "refused by both, in other words"
_TEXT = "a plain text there, a Status here"
_NUL = "a fault of the server's, which reads no further than a NUL"
_NO_METHOD = "no method of HTTP that the parser knows: refused before the path is looked at"
_METHODS = ("FROB", "get", "patch")
_MAPS = ("a ConfigMap", "ConfigMaps")
_JOBS = ("a PyTorchTrainingJob", "PyTorchTrainingJobs")

_OF_CORE = {
    "pod spec.containers.0.env.0={'name': '1A'}": _LATER,
    "pod spec.containers.0.restartPolicy='Sometimes'": _LATER,
    "pod spec.containers.0.resources={'limits': {'hugepages-2Mi': '3Mi', 'memory': '1Gi'}}": _LATER,
    "pod spec.volumes.0={'name': 'v', 'hostPath': {'path': 'a'}}": (
        "no runtime starts a pod that mounts a relative path of its node"
    ),
    "pod spec.containers.0.securityContext={'procMount': 'Sometimes'}": _LATER,
    "pod spec.ephemeralContainers=[{'name': 'e', 'image': 'i'}]": _LATER,
    "pod spec.priorityClassName='No such'": _NO_CLASSES,
    "pod spec.priorityClassName='no-such'": _NO_CLASSES,
    "pod spec.runtimeClassName='A B'": _NO_CLASSES,
    "pod spec.serviceAccountName='A B'": _WORDS,
    "pod spec.preemptionPolicy='Sometimes'": _WORDS,
    "eviction in another namespace": _LATER,
    "service replaced: then spec.ports": _LATER,
    "service replaced: spec.clusterIP then spec.clusterIP": _LATER,
    "service replaced: then spec.type": _LATER,
    "service replaced: then spec.selector": _LATER,
    "service replaced: then metadata.resourceVersion": _LATER,
    "service deleted:  None": _LATER,
    "services deleted": _LATER,
    "claim replaced: then spec.storageClassName": _LATER,
    "pod patched: merge-patch+json  []": _LATER,
    "pod patched: json-patch+json  [{'op': 'leap', 'path': '/spec'}]": _LATER,
    "pod patched: json-patch+json  [{'op': 'add'}]": _LATER,
    "GET /apis/nothing.example.com/v1/things": _TEXT,
    "GET //api/v1/namespaces/{ns}/configmaps": _TEXT,
    "odd ConfigMap {'metadata.creationTimestamp': '2026-01-01T00:00:00+25:00'}": _LATER,
    "ConfigMaps ?labelSelector=a%00": _NUL,
    "ConfigMap merged None": _WORDS,
    "ConfigMap merged []": _LATER,
    "ConfigMap merged {'metadata': {'finalizers': [None]}}": _LATER,
    "a pod's status by no conditions": _LATER,
    **{f"{method} of {what}": _NO_METHOD for method in _METHODS for what in _MAPS},
}
_FAULT = "a fault of the server's, which has no path for such a request and does another's work"
_OF_JOBS = {
    "pytorch spec.replicaSpecs.0.template=\"{'spec': {'containers': [{'name': 'a', '\"": (
        "definitions leave templates open; here they are checked (decision 10)"
    ),
    "replaced: spec.replicaSpecs.0.restartPolicy='Always'": (
        "rules in a definition do not see that a field is added; the policies do"
    ),
    "POST at an object": _FAULT,
    "PUT at a collection": _FAULT,
    "PATCH at a collection": _FAULT,
    "no such version": _TEXT,
    "no such resource": _TEXT,
    "GET //apis/batch.tensorstack.dev/v1beta1/namespaces/{ns}/pytorchtrainingjobs": _TEXT,
    "GET /apis/batch.tensorstack.dev/v1beta1/namespaces//{ns}/pytorchtrainingjobs": _TEXT,
    "PyTorchTrainingJob at status/odd": _FAULT,
    "PyTorchTrainingJobs ?labelSelector=a%00": _NUL,
    "applied first 2 {'metadata': {'name': 'mnist', 'uid': 'x'}}": _WORDS,
    "applied first 8 {'metadata': None}": _WORDS,
    **{f"{method} of {what}": _NO_METHOD for method in _METHODS for what in _JOBS},
}
_NULLS = "times that are absent are null there, and podIPs follow from podIP"
_EMPTY = "an empty map is no field there, and is kept here"
_WHOLE = "who owns nothing of a map but the map owns all that is in it there, once it is read again"
_PORTS = "a fault of the server's, which cannot apply a port without protocol"
_OF_MANAGERS = {
    "created: a pod's node selector": _LATER,
    "created: a pod's reference": _LATER,
    "created: a service": _LATER,
    "created: a headless service": _LATER,
    "created: a claim": _LATER,
    "created: a status": _LATER,
    "created: empty labels": _EMPTY,
    "pod's status": _NULLS,
    "managers set: handed over with a change": _WHOLE,
    "kubectl applies over another's": _WHOLE,
    "applied an empty map": _LATER,
    "service applied": _PORTS,
}
DIFFERENCES = {"core": _OF_CORE, "jobs": _OF_JOBS, "managers": _OF_MANAGERS}
"""By what the case is about, and its name."""
