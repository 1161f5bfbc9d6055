"""Specs of pods that were found valid lately, so that equal ones are not validated again.

The pods of a job differ in their names, in host names and in values of variables, none of which
can make a spec invalid. Validation is half of the CPU time of a create (300 of 600 µs for a pod of
a training job), so the replicas after the first skip it.
"""

from __future__ import annotations

from typing import Any

import orjson

from trainyard.schema.object_names import is_dns_subdomain, is_plain_label

_MAX_SPECS = 128
_MAX_KEY_BYTES = 16 << 10
"""Of one spec: all together take 2 MiB at most."""
_LABEL_FIELDS = ("hostname", "subdomain")
_NAME_FIELDS = {"secret": "secretName", "configMap": "name"}
"""By type of volume, the field that names its object."""
_PLACEHOLDER = "any"


class ValidSpecs:
    """Keys of the valid specs that were added last, as `spec_key` makes them."""

    def __init__(self) -> None:
        self._keys: dict[bytes, None] = {}

    def __contains__(self, key: bytes | None) -> bool:
        return key in self._keys

    def add(self, key: bytes | None) -> None:
        """Remember a spec, in place of the oldest where there are too many."""
        if key is None or len(key) > _MAX_KEY_BYTES:
            return
        if len(self._keys) >= _MAX_SPECS:
            del self._keys[next(iter(self._keys))]
        self._keys[key] = None


def spec_key(pod: dict[str, Any]) -> bytes | None:
    """What decides whether a pod's spec is valid: all of it but names of hosts and objects and
    values of plain variables. None where the spec has no such form."""
    try:
        spec = pod["spec"]
        common = {**spec, "containers": [_without_values(each) for each in spec["containers"]]}
        if "volumes" in spec:
            common["volumes"] = [_without_name(each) for each in spec["volumes"]]
        match spec.get("dnsConfig"):
            case {"searches": [str(domain)]} as resolver if is_dns_subdomain(domain):
                common["dnsConfig"] = {**resolver, "searches": [_PLACEHOLDER]}
        for field in _LABEL_FIELDS:
            if field in spec and is_plain_label(spec[field]):
                common[field] = _PLACEHOLDER
        return orjson.dumps(common)
    except (TypeError, KeyError, AttributeError, orjson.JSONEncodeError):
        return None


def _without_values(container: dict[str, Any]) -> dict[str, Any]:
    """A container with the names alone of its plain variables: those with a text, and no more."""
    variables = container.get("env")
    if type(variables) is not list:
        return container
    names = [
        v["name"] if len(v) == 2 and type(v.get("value")) is type(v.get("name")) is str else [v]
        for v in variables
    ]
    return {**container, "env": names}


def _without_name(volume: dict[str, Any]) -> dict[str, Any]:
    """A volume without the name of its ConfigMap or Secret."""
    for kind, field in _NAME_FIELDS.items():
        source = volume.get(kind)
        if source is not None and field in source and is_plain_label(source[field]):
            return {**volume, kind: {**source, field: _PLACEHOLDER}}
    return volume
