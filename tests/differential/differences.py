"""Where the embedded API server answers otherwise than a real one, and why."""

from __future__ import annotations

_ADMISSION = (
    "a cluster's admission plugins complete the pod (service account, tolerations), "
    "so that what was created is no longer its spec; here nothing is added"
)
_LATER = "newer servers do as we do"
_NO_CLASSES = "there are no such classes here, so the name is judged as a name"
_WORDS = "refused by both, in other words"

DIFFERENCES = {
    "pod spec.containers.0.env.0={'name': '1A'}": _LATER,
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
"""By the case's name."""
