"""Volumes of a pod: one source each, and names and paths that lead nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from trainyard.schema import quantity
from trainyard.schema.problems import REQUIRED, Path, Problem, error
from trainyard.schema.rules.claim_rules import claim_spec
from trainyard.schema.rules.common_rules import (
    Object,
    at_most_one,
    bounds,
    choice,
    file_path,
    mode,
    object_name,
    relative_path,
    required,
    shown,
    without_parent_steps,
)
from trainyard.schema.rules.env_rules import VOLUME_FIELDS, field_reference, resource_reference
from trainyard.schema.rules.storage_rules import disk

_HOST_PATH_TYPES = (
    "DirectoryOrCreate Directory FileOrCreate File Socket CharDevice BlockDevice"  # or ""
)
_PROJECTED = (
    "secret",
    "configMap",
    "downwardAPI",
    "serviceAccountToken",
    "clusterTrustBundle",
    "podCertificate",
)
_WITH_ITEMS = ("secret", "configMap")
_REQUIRED = {
    "configMap": ("name",),
    "secret": ("secretName",),
    "image": ("reference",),
    "nfs": ("server", "path"),
    "gitRepo": ("repository",),
    "csi": ("driver",),
    "rbd": ("monitors", "image"),
    "cephfs": ("monitors",),
    "cinder": ("volumeID",),
    "glusterfs": ("endpoints", "path"),
    "flexVolume": ("driver",),
    "azureFile": ("secretName", "shareName"),
    "azureDisk": ("diskName", "diskURI"),
    "iscsi": ("targetPortal", "iqn"),
    "awsElasticBlockStore": ("volumeID",),
    "gcePersistentDisk": ("pdName",),
    "photonPersistentDisk": ("pdID",),
    "portworxVolume": ("volumeID",),
    "quobyte": ("registry", "volume"),
    "scaleIO": ("gateway", "system", "volumeName"),
    "storageos": ("volumeName",),
    "vsphereVolume": ("volumePath",),
}
_KEYS = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"]
_CERTIFICATES = ("credentialBundlePath", "keyPath", "certificateChainPath")
_TOKEN_SECONDS = (600, 1 << 32)


def volume(each: Object, path: Path) -> Iterator[Problem]:
    """Problems of one volume's source; none at all is an empty folder."""
    sources = [field for field in each if field != "name"]
    yield from at_most_one(each, path, sources, "source")
    for kind in sources:
        if each[kind] is not None:
            yield from _source(kind, each[kind], (*path, kind))


def _source(kind: str, source: Object, path: Path) -> Iterator[Problem]:
    yield from required(source, path, *_REQUIRED.get(kind, ()))
    yield from mode(source, path, "defaultMode")
    if (rules := _RULES.get(kind)) is not None:
        yield from rules(source, path)
    yield from disk(kind, source, path)


def _empty_dir(source: Object, path: Path) -> Iterator[Problem]:
    if quantity.parse(source.get("sizeLimit") or 0) < 0:
        yield error((*path, "sizeLimit"), f"must not be negative, is {source['sizeLimit']}")


def _nfs(source: Object, path: Path) -> Iterator[Problem]:
    if not source["path"].startswith("/"):
        yield error((*path, "path"), "must be an absolute path")


def _git_repo(source: Object, path: Path) -> Iterator[Problem]:
    yield from relative_path(source.get("directory") or "", (*path, "directory"))


def _image(source: Object, path: Path) -> Iterator[Problem]:
    yield from choice(source, path, "pullPolicy", ("Always", "Never", "IfNotPresent"))


def _ephemeral(source: Object, path: Path) -> Iterator[Problem]:
    template = source.get("volumeClaimTemplate")
    if template is None:
        yield error((*path, "volumeClaimTemplate"), REQUIRED)
    else:
        yield from claim_spec(template["spec"], (*path, "volumeClaimTemplate", "spec"))


def _items(source: Object, path: Path) -> Iterator[Problem]:
    for index, item in enumerate(source.get("items") or ()):
        here = (*path, "items", index)
        yield from required(item, here, "key", "path")
        yield from file_path(item["path"], (*here, "path"))
        yield from mode(item, here, "mode")


def _files(source: Object, path: Path) -> Iterator[Problem]:
    for index, item in enumerate(source.get("items") or ()):
        here = (*path, "items", index)
        yield from required(item, here, "path")
        yield from file_path(item["path"], (*here, "path"))
        yield from mode(item, here, "mode")
        field, amount = item.get("fieldRef"), item.get("resourceFieldRef")
        if (field is None) == (amount is None):
            yield error(here, "must have one of fieldRef and resourceFieldRef")
        if field is not None:
            yield from field_reference(field, (*here, "fieldRef"), VOLUME_FIELDS)
        elif amount is not None:
            place = (*here, "resourceFieldRef")
            yield from resource_reference(amount, place, in_volume=True)


def _projected(source: Object, path: Path) -> Iterator[Problem]:
    taken: set[str] = set()
    for index, part in enumerate(source.get("sources") or ()):
        here = (*path, "sources", index)
        yield from at_most_one(part, here, _PROJECTED, "source")
        for kind in _WITH_ITEMS:
            if part.get(kind) is not None:
                yield from required(part[kind], (*here, kind), "name")
                yield from _items(part[kind], (*here, kind))
        if (files := part.get("downwardAPI")) is not None:
            yield from _files(files, (*here, "downwardAPI"))
        if (token := part.get("serviceAccountToken")) is not None:
            place = (*here, "serviceAccountToken")
            yield from bounds(token, place, "expirationSeconds", *_TOKEN_SECONDS)
            yield from required(token, place, "path")
            yield from file_path(token["path"], (*place, "path"))
        yield from _certificates(part, here)
        for kind in ("secret", "configMap", "downwardAPI"):
            for number, item in enumerate((part.get(kind) or {}).get("items") or ()):
                if item["path"] in taken:
                    place = (*here, kind, "items", number, "path")
                    yield error(place, f"there is a file {shown(item['path'])} already")
                taken.add(item["path"])


def _certificates(part: Object, path: Path) -> Iterator[Problem]:
    if (bundle := part.get("clusterTrustBundle")) is not None:
        here, fields = (*path, "clusterTrustBundle"), ("name", "signerName")
        yield from at_most_one(bundle, here, fields, "of both")
        if all(bundle.get(field) is None for field in fields):
            yield error(here, f"must have one of {' and '.join(fields)}")
        yield from required(bundle, here, "path")
        yield from file_path(bundle["path"], (*here, "path"))
    if (own := part.get("podCertificate")) is not None:
        here = (*path, "podCertificate")
        if "/" not in own["signerName"]:
            text = f"{shown(own['signerName'])} is no signer, such as example.com/signer"
            yield error((*here, "signerName"), text)
        yield from choice(own, here, "keyType", _KEYS)
        given = [field for field in _CERTIFICATES if own.get(field)]
        if not given:
            yield error(here, f"must have one of {', '.join(_CERTIFICATES)}")
        for field in given:
            yield from file_path(own[field], (*here, field))


def _claim(source: Object, path: Path) -> Iterator[Problem]:
    # Kubernetes leaves a claim's name to be found wrong when the pod starts.
    name, here = source.get("claimName") or "", (*path, "claimName")
    if not name:
        yield error(here, REQUIRED)
    else:
        yield from object_name(name, here, "claim's name")


def _host_path(host: Object, path: Path) -> Iterator[Problem]:
    place = host.get("path") or ""
    if not place:
        yield error((*path, "path"), REQUIRED)
    elif not place.startswith("/"):
        yield error((*path, "path"), "must be an absolute path")
    yield from without_parent_steps(place, (*path, "path"))
    yield from choice(host, path, "type", _HOST_PATH_TYPES.split())


_RULES: Mapping[str, Callable[[Object, Path], Iterator[Problem]]] = {
    "configMap": _items,
    "secret": _items,
    "downwardAPI": _files,
    "projected": _projected,
    "persistentVolumeClaim": _claim,
    "hostPath": _host_path,
    "emptyDir": _empty_dir,
    "nfs": _nfs,
    "gitRepo": _git_repo,
    "image": _image,
    "ephemeral": _ephemeral,
}
