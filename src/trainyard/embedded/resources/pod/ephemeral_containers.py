"""Ephemeral containers, which are added to running pods (`kubectl debug`).

`podEphemeralContainersStrategy` of kube-apiserver (pkg/registry/core/pod): other changes of
the pod are ignored, and containers that were added cannot change.
"""

from __future__ import annotations

from typing import Any

from trainyard.embedded.api_errors import StatusCause
from trainyard.embedded.resources.pod import pod_defaults

Object = dict[str, Any]
SUBRESOURCE = "ephemeralcontainers"
_FIELD = "ephemeralContainers"
_WRITTEN = ("uid", "resourceVersion", "managedFields")


def prepare(new: Object, old: Object) -> list[StatusCause]:
    """Turn `new` into the pod `old` with the added containers; returns why that is refused."""
    wanted = new["spec"].get(_FIELD) or []
    for each in wanted:
        pod_defaults.of_container(each)
    metadata = {key: new["metadata"][key] for key in _WRITTEN if key in new["metadata"]}
    new |= {**old, "metadata": {**old["metadata"], **metadata}}
    new["spec"] = {**old["spec"], _FIELD: wanted}
    by_name = {each["name"]: each for each in wanted}
    return [
        StatusCause(f"spec.{_FIELD}", f"Forbidden: {text}", "FieldValueForbidden")
        for each in old["spec"].get(_FIELD) or ()
        if (text := _refusal(each, by_name.get(each["name"])))
    ]


def warnings(new: Object, old: Object | None) -> list[str]:
    """A warning where the pod has ended: kubectl would wait forever for the container."""
    phase = ((old or {}).get("status") or {}).get("phase")
    if old is None or phase not in ("Succeeded", "Failed"):
        return []
    if (new.get("spec") or {}).get(_FIELD) == old["spec"].get(_FIELD):
        return []
    name = old["metadata"]["name"]
    text = f"pod {name} has ended, and nothing more runs in it; debug a copy of it: "
    return [text + f"kubectl debug {name} --copy-to=NAME"]


def _refusal(was: Object, wanted: Object | None) -> str:
    if wanted == was:
        return ""
    what = "changed" if wanted else "removed"
    return f'existing ephemeral containers "{was["name"]}" may not be {what}'
