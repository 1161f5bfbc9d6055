"""Volumes that storage outside of the cluster provides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from trainyard.schema.problems import REQUIRED, Path, Problem, error
from trainyard.schema.rules.common_rules import (
    Object,
    at_most_one,
    bounds,
    choice,
    label_name,
    object_name,
    required,
    shown,
)

_MOST_LUN, _MOST_PARTITION = 255, 255
_MOST_DRIVER, _MOST_TENANT = 63, 64
_INITIATOR = re.compile(
    r"(iqn\.\d{4}-\d{2}\.[-.A-Za-z0-9]+:[^,;*&$|\s]+|eui\.[A-Za-z0-9]{16}|naa\.[A-Za-z0-9]{32})\Z"
)
_BLOB, _DISKS = "https://", {"Managed": "/subscriptions/"}


def disk(kind: str, source: Object, path: Path) -> Iterator[Problem]:
    """Problems of one such source, beside what it lacks."""
    if (rules := _RULES.get(kind)) is not None:
        yield from rules(source, path)


def _partition(source: Object, path: Path) -> Iterator[Problem]:
    yield from bounds(source, path, "partition", 0, _MOST_PARTITION)


def _iscsi(source: Object, path: Path) -> Iterator[Problem]:
    yield from bounds(source, path, "lun", 0, _MOST_LUN)
    for field in ("iqn", "initiatorName"):
        if (name := source.get(field)) and not _INITIATOR.match(name):
            text = "is no name of iSCSI, such as iqn.2015-02.example.com:storage"
            yield error((*path, field), f"{shown(name)} {text}")
    has_secret = source.get("secretRef") is not None
    if not has_secret and (source.get("chapAuthDiscovery") or source.get("chapAuthSession")):
        yield error((*path, "secretRef"), REQUIRED)


def _fibre_channel(source: Object, path: Path) -> Iterator[Problem]:
    names, ids = source.get("targetWWNs") or (), source.get("wwids") or ()
    if bool(names) == bool(ids):
        yield error((*path, "targetWWNs"), "give one of targetWWNs and wwids")
    if names and source.get("lun") is None:
        yield error((*path, "lun"), REQUIRED)
    yield from bounds(source, path, "lun", 0, _MOST_LUN)


def _flocker(source: Object, path: Path) -> Iterator[Problem]:
    fields = ("datasetName", "datasetUUID")
    given = [field for field in fields if source.get(field)]
    if not given:
        yield error(path, f"must have one of {' and '.join(fields)}")
    yield from at_most_one(source, path, given, "of them")
    if "/" in (source.get("datasetName") or ""):
        yield error((*path, "datasetName"), "must not contain '/'")


def _azure_disk(source: Object, path: Path) -> Iterator[Problem]:
    kinds, modes = ("Shared", "Dedicated", "Managed"), ("None", "ReadOnly", "ReadWrite")
    yield from choice(source, path, "kind", kinds)
    yield from choice(source, path, "cachingMode", modes)
    kind, place = source.get("kind") or "Shared", source.get("diskURI") or ""
    if place and not place.startswith(_DISKS.get(kind, _BLOB)):
        text = f"must begin with {_DISKS.get(kind, _BLOB)} for a disk of kind {kind}"
        yield error((*path, "diskURI"), text)


def _quobyte(source: Object, path: Path) -> Iterator[Problem]:
    registry = source.get("registry") or ""
    if registry and not all(len(pair.split(":")) == 2 for pair in registry.split(",")):
        yield error((*path, "registry"), f"{shown(registry)} is not host:port, or several of them")
    if len(source.get("tenant") or "") > _MOST_TENANT:
        yield error((*path, "tenant"), f"must not be longer than {_MOST_TENANT} characters")


def _storage_os(source: Object, path: Path) -> Iterator[Problem]:
    for field in ("volumeName", "volumeNamespace"):
        if source.get(field):
            yield from label_name(source[field], (*path, field), "name of a volume")


def _csi(source: Object, path: Path) -> Iterator[Problem]:
    driver, here = source.get("driver") or "", (*path, "driver")
    if len(driver) > _MOST_DRIVER:
        yield error(here, f"must not be longer than {_MOST_DRIVER} characters")
    elif driver:
        yield from object_name(driver.lower(), here, "driver")
    if (secret := source.get("nodePublishSecretRef")) is not None:
        yield from required(secret, (*path, "nodePublishSecretRef"), "name")


_RULES: Mapping[str, Callable[[Object, Path], Iterator[Problem]]] = {
    "awsElasticBlockStore": _partition,
    "azureDisk": _azure_disk,
    "csi": _csi,
    "fc": _fibre_channel,
    "flocker": _flocker,
    "gcePersistentDisk": _partition,
    "iscsi": _iscsi,
    "quobyte": _quobyte,
    "storageos": _storage_os,
}
