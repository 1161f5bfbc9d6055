"""Containers that are added to a pod which runs, as by `kubectl debug`.

`podEphemeralContainersStrategy` of kube-apiserver (pkg/registry/core/pod): whatever else of the
pod a request changes is not looked at, and what was added stays as it is.
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
    """Make `new` the pod `old` with what is added; why that may not be."""
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
    """What whoever adds one should know: kubectl waits for it to run."""
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
