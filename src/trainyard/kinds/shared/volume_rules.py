"""Rules about volumes and where they are mounted: names and paths that lead nowhere else.

Most are Kubernetes' own (pkg/apis/core/validation); it leaves a claim's name and a ``mountPath``
to be found wrong when the pod starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.schema.names import is_dns_subdomain
from trainyard.schema.problems import REQUIRED, Path, Problem, error

_WITH_ITEMS = ("configMap", "secret", "downwardAPI")
_HOST_PATH_TYPES = (
    "DirectoryOrCreate Directory FileOrCreate File Socket CharDevice BlockDevice"  # or ""
)
_CONTAINER_PATHS = ("workingDir", "terminationMessagePath")


def check_volume(volume: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    """Problems of one volume's source."""
    for place, source in _with_items(volume, path):
        for index, item in enumerate(source.get("items") or ()):
            here = (*place, "items", index, "path")
            yield from _relative(item.get("path") or "", here)
            if item.get("path", "").startswith(".."):
                yield error(here, "must not start with '..'")
    if (claim := volume.get("persistentVolumeClaim")) is not None:
        name, here = claim.get("claimName") or "", (*path, "persistentVolumeClaim", "claimName")
        if not name:
            yield error(here, REQUIRED)
        elif not is_dns_subdomain(name):
            text = "use lower-case letters, digits, '-' and '.'"
            yield error(here, f"'{name[:63]}' is no claim's name; {text}")
    if (host := volume.get("hostPath")) is not None:
        yield from _host_path(host, (*path, "hostPath"))


def check_mounts_of(container: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    """Problems of the paths of one container."""
    for field in _CONTAINER_PATHS:
        yield from _whole(container.get(field) or "", (*path, field))
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        here = (*path, "volumeMounts", index)
        place = mount.get("mountPath") or ""
        if not place:
            yield error((*here, "mountPath"), REQUIRED)
        elif ":" in place:
            yield error((*here, "mountPath"), "must not contain ':'")
        elif not place.strip("/."):
            yield error((*here, "mountPath"), "is the root of the pod; mount a volume below it")
        yield from _whole(place, (*here, "mountPath"))
        for field in ("subPath", "subPathExpr"):
            if inner := mount.get(field):
                yield from _relative(inner, (*here, field))
        if mount.get("subPath") and mount.get("subPathExpr"):
            yield error((*here, "subPathExpr"), "subPathExpr and subPath are mutually exclusive")


def _with_items(volume: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    sources = [(path, volume)]
    parts = (volume.get("projected") or {}).get("sources") or ()
    sources += [((*path, "projected", "sources", index), part) for index, part in enumerate(parts)]
    for place, source in sources:
        for kind in _WITH_ITEMS:
            if source.get(kind):
                yield (*place, kind), source[kind]


def _host_path(host: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    place, kind = host.get("path") or "", host.get("type") or ""
    if not place:
        yield error((*path, "path"), REQUIRED)
    elif not place.startswith("/"):
        yield error((*path, "path"), "must be an absolute path")
    elif ".." in place.split("/"):
        yield error((*path, "path"), "must not contain '..'")
    yield from _whole(place, (*path, "path"))
    known = _HOST_PATH_TYPES.split()
    if kind and kind not in known:
        yield error((*path, "type"), f"must be one of {', '.join(known)}, not '{kind[:63]}'")


def _relative(text: str, path: Path) -> Iterator[Problem]:
    if not text:
        yield error(path, REQUIRED)
    elif text.startswith("/"):
        yield error(path, "must be a relative path")
    elif ".." in text.split("/"):
        yield error(path, "must not contain '..'")
    yield from _whole(text, path)


def _whole(text: str, path: Path) -> Iterator[Problem]:
    if "\0" in text:
        yield error(path, "must not hold a null character")
