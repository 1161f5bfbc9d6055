"""Where the embedded API server answers otherwise than a real one, and why."""

from __future__ import annotations

_ADMISSION = (
    "a cluster's admission plugins complete the pod (service account, tolerations), "
    "so that what was created is no longer its spec; here nothing is added"
)
_LATER = "newer servers do as we do"
_NO_CLASSES = "there are no such classes here, so the name is judged as a name"
_WORDS = "refused by both, in other words"

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
    "pod replaced: then": _ADMISSION,
    "pod replaced: then spec.containers.0.image": _ADMISSION,
    "pod replaced: then spec.activeDeadlineSeconds": _ADMISSION,
    "pod replaced: spec.activeDeadlineSeconds then spec.activeDeadlineSeconds": _ADMISSION,
    "pod replaced: then spec.tolerations": _ADMISSION,
    "pod replaced: then metadata.labels": _ADMISSION,
    "pod replaced: then metadata.resourceVersion": _ADMISSION,
    "pod replaced: then metadata.resourceVersion #3": _ADMISSION,
    "pod replaced: then metadata.creationTimestamp": _ADMISSION,
    "pod replaced: then metadata.generateName": _ADMISSION,
    "pod replaced: then status": _ADMISSION,
    "service replaced: then spec.ports": _LATER,
    "service replaced: spec.clusterIP then spec.clusterIP": _LATER,
    "service replaced: then spec.type": _LATER,
    "service replaced: then spec.selector": _LATER,
    "service replaced: then metadata.resourceVersion": _LATER,
    "service deleted:  None": _LATER,
    "services deleted": _LATER,
    "claim replaced: then spec.storageClassName": _LATER,
    "pod patched: merge-patch+json  {'metadata': {'uid': 'other'}}": _WORDS,
    "pod patched: merge-patch+json  {'kind': 'Service'}": _WORDS,
    "pod patched: merge-patch+json  []": _WORDS,
    "configmap patched: apply-patch+yaml ?fieldManager=me "
    "{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'c', #2": _WORDS,
    "GET /api/v1/namespaces/{ns}/pods?resourceVersion=1&resourceVersionMatch=Exact&limit=1": (
        "no history of lists is kept here"
    ),
    "GET /apis/nothing.example.com/v1/things": "a plain text there, a Status here",
}
_STRICTER = "a server drops it without a word; here whoever wrote it is told"
_BY_URL = "a server wants both; here the URL says them"
_SCALES_NOTHING = (
    "a server does not look whether the job is elastic before the definition refuses it"
)
_FAULT = "a fault of the server's, which has no path for such a request and does another's work"
_OF_JOBS = {
    "pytorch metadata.unknown='1'": _STRICTER,
    "pytorch status=\"{'phase': 1}\"": _STRICTER,
    "pytorch spec.replicaSpecs.0.restartPolicy='None'": _STRICTER,
    "pytorch spec.replicaSpecs.0.replicas='2.0'": "a server stores it as 2; here it is no integer",
    "pytorch spec.replicaSpecs.0.template=\"{'spec': {'containers': [{'name': 'a', '\"": (
        "definitions leave templates open; here they are checked (decision 10)"
    ),
    "replaced: spec.replicaSpecs.0.restartPolicy='Always'": (
        "rules in a definition do not see that a field is added; the policies do"
    ),
    "pytorch kind='-'": _BY_URL,
    "pytorch apiVersion='-'": _BY_URL,
    "pytorch kind='Pod'": _WORDS,
    "another kind": _WORDS,
    "replaced: kind='Pod'": _WORDS,
    "patched: json-patch+  [{'op': 'jump', 'path': '/spec'}]": _WORDS,
    "patched: merge-patch ?fieldValidation=Strict {'spec': {'odd': 1}}": _WORDS,
    "patched: apply-patch ?fieldManager=me&force=true "
    "{'apiVersion': 'batch.tensorstack.dev/v1beta1', 'kind': 'PyT #2": (
        "a server fails when an unknown field is applied; here it is dropped, with a warning"
    ),
    "list fieldSelector=%3D": "a selector without a field is refused here",
    **{
        f"scale of {name}": "a server finds no size in a job that is not elastic, and fails"
        for name in ("pytorch", "deepspeed")
    },
    **{
        f"scale of {name} to {replicas!r}": _SCALES_NOTHING
        for name in ("pytorch", "deepspeed")
        for replicas in (4, 9, 0, -1, "4", None)
    },
    "scale of elastic to -1": _WORDS,
    "scale of elastic to '4'": _WORDS,
    "POST at an object": _FAULT,
    "PUT at a collection": _FAULT,
    "PATCH at a collection": _FAULT,
    "no such version": "a plain text there, a Status here",
    "no such resource": "a plain text there, a Status here",
}
DIFFERENCES = {"core": _OF_CORE, "jobs": _OF_JOBS}
"""By what the case is about, and its name."""
