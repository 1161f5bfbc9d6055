"""Volumes: test/e2e/common/storage and test/e2e/storage."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

from tests.foreign.e2e.world import Object, Place, Play, expects, served

here = partial(expects, "storage")
SHOW = "stat -L -c %a /v/{path}; cat /v/{path}"
FOLLOW = """\
old=-
while :; do
  new=`cat /v/{path} 2>&1`
  [ "$new" = "$old" ] || echo "now $new"
  old=$new
  sleep 0.1
done"""
"""Prints what is in a file whenever that changes."""


def volume(source: Object, name: str = "v") -> Object:
    return {"name": name, **source}


def mounted(*paths: str, names: tuple[str, ...] = (), **more: Any) -> Object:
    """Of a container: its volume mounts."""
    pairs = zip(names or ("v",) * len(paths), paths, strict=True)
    return {"volumeMounts": [{"name": name, "mountPath": path, **more} for name, path in pairs]}


class Keyed:
    """A ConfigMap or a Secret as a volume, itself or projected."""

    def __init__(self, plural: str, projected: bool) -> None:
        self.plural, self.projected = plural, projected

    async def make(self, place: Place, name: str = "source", **data: str) -> None:
        await place.make(self.plural, name, **self.content(data))

    def content(self, data: dict[str, str]) -> Object:
        return {"data": data} if self.plural == "configmaps" else {"stringData": data}

    def source(self, name: str = "source", mode: int | None = None, **more: Any) -> Object:
        """A volume; `mode`: its defaultMode."""
        kind = "configMap" if self.plural == "configmaps" else "secret"
        modes = {} if mode is None else {"defaultMode": mode}
        if self.projected:
            return {"projected": {**modes, "sources": [{kind: {"name": name, **more}}]}}
        key = "name" if kind == "configMap" else "secretName"
        return {kind: {key: name, **modes, **more}}


MAPPED: Object = {"items": [{"key": "data-2", "path": "path/to/data-2"}]}
MAPPED_MODE: Object = {"items": [{"key": "data-2", "path": "path/to/data-2", "mode": 0o400}]}
AS_1000 = {"securityContext": {"runAsUser": 1000}}
AS_GROUP = {"securityContext": {"runAsUser": 1000, "fsGroup": 1001}}


def shown(keyed: Keyed, path: str, wanted: str, spec: Object | None = None, **source: Any) -> Play:
    """A pod reads a file of the volume, which has that mode."""

    async def play(place: Place) -> None:
        await keyed.make(place, **{"data-1": "value-1\n", "data-2": "value-2\n"})
        text = await place.run(
            SHOW.format(path=path),
            container=mounted("/v"),
            volumes=[volume(keyed.source(**source))],
            **(spec or {}),
        )
        assert text == f"{wanted}\nvalue-{path[-1]}\n", text

    return play


async def several(keyed: Keyed, place: Place) -> None:
    await keyed.make(place, **{"data-1": "value-1"})
    text = await place.run(
        "cat /v/data-1 /w/data-1",
        container=mounted("/v", "/w", names=("v", "w")),
        volumes=[volume(keyed.source()), volume(keyed.source(), "w")],
    )
    assert text == "value-1" * 2


async def updated(keyed: Keyed, place: Place) -> None:
    await keyed.make(place, **{"data-1": "value-1"})
    await place.start(
        "p",
        FOLLOW.format(path="data-1"),
        container=mounted("/v"),
        volumes=[volume(keyed.source())],
    )
    await place.shows("p", "now value-1\n")
    await place.patch(f"{keyed.plural}/source", keyed.content({"data-1": "value-2"}))
    await place.shows("p", "now value-2\n")


async def optional(keyed: Keyed, place: Place) -> None:
    """One comes, one changes, one goes."""
    names = ("comes", "changes", "goes")
    for name in names[1:]:
        await keyed.make(place, name, data="first")
    containers = [
        {
            "name": name,
            "image": "busybox",
            "command": ["sh", "-c", FOLLOW.format(path="data")],
            **mounted("/v", names=(name,)),
        }
        for name in names
    ]
    volumes = [volume(keyed.source(name, optional=True), name) for name in names]
    await place.start("p", "", containers=containers, volumes=volumes)
    await place.shows("p", "No such file", "comes")
    for name in names[1:]:
        await place.shows("p", "now first\n", name)
    await keyed.make(place, "comes", data="first")
    await place.patch(f"{keyed.plural}/changes", keyed.content({"data": "second"}))
    await place.ask("DELETE", f"{keyed.plural}/goes")
    await place.shows("p", "now first\n", "comes")
    await place.shows("p", "now second\n", "changes")
    await place.shows("p", "No such file", "goes")


async def immutable(keyed: Keyed, place: Place) -> None:
    await keyed.make(place, a="1")
    path = f"{keyed.plural}/source"
    await place.patch(path, keyed.content({"a": "2"}))
    await place.patch(path, {"immutable": True})
    found = await place.ask("GET", path)
    await place.refused(422, "PUT", path, {**found, "data": {"a": "Mw=="}})
    await place.refused(422, "PUT", path, {**found, "immutable": False})
    await place.patch(path, {"metadata": {"labels": {"x": "y"}}})
    await place.ask("DELETE", path)


MAPS, SECRETS = Keyed("configmaps", False), Keyed("secrets", False)
OF_MAPS, OF_SECRETS = Keyed("configmaps", True), Keyed("secrets", True)
SPOKEN = {
    "ConfigMap": MAPS,
    "Projected configMap": OF_MAPS,
    "Projected secret": OF_SECRETS,
    "Secrets": SECRETS,
}
_CONSUMED = "should be consumable from pods in volume"
for _what, _keyed in SPOKEN.items():
    _is_map = _keyed.plural == "configmaps"
    _item = "Item mode" if _is_map else "Item Mode"
    _one = "the same pod" if _is_map else "a pod"
    here(f"{_what} {_CONSUMED}")(shown(_keyed, "data-1", "644"))
    here(f"{_what} {_CONSUMED} with defaultMode set")(shown(_keyed, "data-1", "400", mode=0o400))
    here(f"{_what} {_CONSUMED} with mappings")(shown(_keyed, "path/to/data-2", "644", **MAPPED))
    here(f"{_what} {_CONSUMED} with mappings and {_item} set")(
        shown(_keyed, "path/to/data-2", "400", **MAPPED_MODE)
    )
    here(f"{_what} should be consumable in multiple volumes in {_one}")(partial(several, _keyed))
    here(f"{_what} optional updates should be reflected in volume")(partial(optional, _keyed))
    if _is_map:
        here(f"{_what} {_CONSUMED} as non-root")(shown(_keyed, "data-1", "644", AS_1000))
        here(f"{_what} {_CONSUMED} with mappings as non-root")(
            shown(_keyed, "path/to/data-2", "644", AS_1000, **MAPPED)
        )
        here(f"{_what} updates should be reflected in volume")(partial(updated, _keyed))
    else:
        here(f"{_what} {_CONSUMED} as non-root with defaultMode and fsGroup set")(
            shown(_keyed, "data-1", "440", AS_GROUP, mode=0o440)
        )
here("ConfigMap should be immutable if `immutable` field is set")(partial(immutable, MAPS))
here("Secrets should be immutable if `immutable` field is set")(partial(immutable, SECRETS))


@here("ConfigMap binary data should be reflected in volume")
async def _binary(place: Place) -> None:
    data = bytes(range(256))
    encoded = base64.b64encode(data).decode()
    await place.make("configmaps", "source", data={"text": "t"}, binaryData={"bytes": encoded})
    text = await place.run(
        "cat /v/text; base64 -w0 /v/bytes",
        container=mounted("/v"),
        volumes=[volume(MAPS.source())],
    )
    assert text == f"t{encoded}"


@here(
    "Secrets should be able to mount in a volume regardless of a different secret existing with "
    "same name in different namespace"
)
async def _elsewhere(place: Place) -> None:
    other = Place(place.world, f"{place.namespace}-b")
    await place.plainly("POST", "/api/v1/namespaces", {"metadata": {"name": other.namespace}})
    await SECRETS.make(other, a="theirs")
    await SECRETS.make(place, a="ours")
    text = await place.run("cat /v/a", container=mounted("/v"), volumes=[volume(SECRETS.source())])
    assert text == "ours"
    await place.plainly("DELETE", f"/api/v1/namespaces/{other.namespace}")


# The downward API as files.

AMOUNTS = {
    "requests": {"cpu": "250m", "memory": "32Mi"},
    "limits": {"cpu": "1250m", "memory": "64Mi"},
}


def field(path: str, name: str = "file", **more: Any) -> Object:
    return {"path": name, "fieldRef": {"fieldPath": path}, **more}


def amount(resource: str, divisor: str = "1") -> Object:
    of = {"containerName": "c", "resource": resource, "divisor": divisor}
    return {"path": "file", "resourceFieldRef": of}


def downward(projected: bool, *items: Object, **more: Any) -> Object:
    if projected:
        return {"projected": {"sources": [{"downwardAPI": {"items": list(items)}}], **more}}
    return {"downwardAPI": {"items": list(items), **more}}


def told(projected: bool, item: Object, wanted: str, resources: Object, **more: Any) -> Play:
    """A pod called `p-of-it` finds that in the file, with its mode."""

    async def play(place: Place) -> None:
        parts = {**mounted("/v"), "resources": resources}
        source = volume(downward(projected, item, **more))
        await place.start("p-of-it", SHOW.format(path="file"), container=parts, volumes=[source])
        pod = await place.ended("p-of-it")
        mode, _, text = (await place.log("p-of-it")).partition("\n")
        assert pod["status"]["phase"] == "Succeeded", pod["status"]
        given = item.get("mode", more.get("defaultMode", 0o644))
        assert (int(mode, 8), text) == (given, wanted or await allocatable(place, item))

    return play


async def allocatable(place: Place, item: Object) -> str:
    """What the node has of it, in whole cores or bytes."""
    from trainyard.schema import quantity

    (node,) = (await place.plainly("GET", "/api/v1/nodes"))["items"]
    amounts = node["status"]["allocatable"]
    kind = item["resourceFieldRef"]["resource"].partition(".")[2]
    return str(-(-quantity.parse(amounts[kind]) // 1))


async def relabelled(projected: bool, key: str, place: Place) -> None:
    source = volume(downward(projected, field(f"metadata.{key}")))
    await place.start(
        "p",
        FOLLOW.format(path="file"),
        container=mounted("/v"),
        volumes=[source],
        metadata={key: {"a": "first"}},
    )
    await place.shows("p", 'a="first"')
    await place.patch("pods/p", {"metadata": {key: {"a": "second"}}})
    await place.shows("p", 'a="second"')


for _what, _projected in (("Downward API volume", False), ("Projected downwardAPI", True)):
    _resources: dict[str, tuple[str, str, str]] = {
        "container's cpu limit": ("limits.cpu", "1m", "1250"),
        "container's cpu request": ("requests.cpu", "1m", "250"),
        "container's memory limit": ("limits.memory", "1", str(64 << 20)),
        "container's memory request": ("requests.memory", "1", str(32 << 20)),
    }
    for _name, (_resource, _divisor, _wanted) in _resources.items():
        here(f"{_what} should provide {_name}")(
            told(_projected, amount(_resource, _divisor), _wanted, AMOUNTS)
        )
    for _kind in ("cpu", "memory"):
        here(
            f"{_what} should provide node allocatable ({_kind}) as default {_kind} limit if the "
            "limit is not set"
        )(told(_projected, amount(f"limits.{_kind}"), "", {}))
    _pod = "metadata.name"
    here(f"{_what} should provide podname only")(told(_projected, field(_pod), "p-of-it", {}))
    here(f"{_what} should set DefaultMode on files")(
        told(_projected, field(_pod), "p-of-it", {}, defaultMode=0o400)
    )
    here(f"{_what} should set mode on item file")(
        told(_projected, field(_pod, mode=0o400), "p-of-it", {})
    )
    for _key in ("labels", "annotations"):
        here(f"{_what} should update {_key} on modification")(partial(relabelled, _projected, _key))


@here("Projected combined should project all components that make up the projection API")
async def _combined(place: Place) -> None:
    await MAPS.make(place, a="map")
    await SECRETS.make(place, b="secret")
    sources = [
        {"configMap": {"name": "source"}},
        {"secret": {"name": "source"}},
        {"downwardAPI": {"items": [field("metadata.namespace", "c")]}},
    ]
    text = await place.run(
        "cat /v/a /v/b /v/c",
        container=mounted("/v"),
        volumes=[volume({"projected": {"sources": sources}})],
    )
    assert text == f"mapsecret{place.namespace}"


# Empty folders.


def empty(medium: str, script: str, wanted: str, user: int) -> Play:
    async def play(place: Place) -> None:
        source = {"emptyDir": {"medium": "Memory"} if medium == "tmpfs" else {}}
        text = await place.run(
            f"umask 0; {script}; stat -f -c %T /v",
            container=mounted("/v"),
            volumes=[volume(source)],
            securityContext={"runAsUser": user},
        )
        *found, kind = text.split()
        assert found == wanted.split()
        assert medium == "default" or kind == "tmpfs"

    return play


for _user, _mode, _medium in product(
    ("root", "non-root"), ("0644", "0666", "0777"), ("default", "tmpfs")
):
    here(f"EmptyDir volumes should support ({_user},{_mode},{_medium})")(
        empty(
            _medium,
            f"echo content > /v/f; chmod {_mode} /v/f; stat -c %a /v/f; cat /v/f",
            f"{_mode[1:]} content",
            0 if _user == "root" else 1001,
        )
    )
for _place, _medium in (("on default medium", "default"), ("on tmpfs", "tmpfs")):
    here(f"EmptyDir volumes volume {_place} should have the correct mode")(
        empty(_medium, "stat -c %a /v", "777", 0)
    )


@here("EmptyDir volumes pod should support shared volumes between containers")
async def _shared(place: Place) -> None:
    writes = {"name": "w", "image": "busybox", **mounted("/w")}
    writes["command"] = ["sh", "-c", "echo shared > /w/draft; mv /w/draft /w/f"]
    reads = {"name": "c", "image": "busybox", **mounted("/v")}
    reads["command"] = ["sh", "-c", "until cat /v/f 2>/dev/null; do sleep 0.1; done"]
    await place.start("p", "", containers=[writes, reads], volumes=[volume({"emptyDir": {}})])
    pod = await place.ended("p")
    assert pod["status"]["phase"] == "Succeeded", pod["status"]
    assert await place.log("p") == "shared\n"


@here("EmptyDir wrapper volumes should not conflict")
async def _both(place: Place) -> None:
    await MAPS.make(place, a="1")
    await SECRETS.make(place, a="2")
    text = await place.run(
        "cat /v/a /w/a",
        container=mounted("/v", "/w", names=("v", "w")),
        volumes=[volume(MAPS.source()), volume(SECRETS.source(), "w")],
    )
    assert text == "12"


@here("EmptyDir wrapper volumes should not cause race condition when used for configmaps")
async def _many(place: Place) -> None:
    """Fewer than the fifty of five pods."""
    names = [f"m{number}" for number in range(20)]
    for name in names:
        await MAPS.make(place, name, a=name)
    volumes = [volume(MAPS.source(name), name) for name in names]
    mounts = mounted(*(f"/v/{name}" for name in names), names=tuple(names))
    for name in ("p", "q"):
        await place.start(name, "cat /v/*/a", container=mounts, volumes=volumes)
    for name in ("p", "q"):
        assert (await place.ended(name))["status"]["phase"] == "Succeeded"
        assert await place.log(name) == "".join(sorted(names))


# Parts of a volume.


def part(source: Callable[[], Object], at: str = "/part") -> Play:
    """A part of a volume that Kubernetes writes all at once."""

    async def play(place: Place) -> None:
        await MAPS.make(place, sub="content")
        await SECRETS.make(place, sub="content")
        text = await place.run(
            f"cat {at}",
            container=mounted(at, subPath="sub"),
            volumes=[volume(source())],
            metadata={"labels": {"a": "content"}},
        )
        assert text == "content"

    return play


_SUBPATHS = "Subpath Atomic writer volumes should support subpaths with"
here(f"{_SUBPATHS} configmap pod")(part(MAPS.source))
here(f"{_SUBPATHS} configmap pod with mountPath of existing file")(part(MAPS.source, "/etc/passwd"))
here(f"{_SUBPATHS} secret pod")(part(SECRETS.source))
here(f"{_SUBPATHS} projected pod")(part(OF_MAPS.source))
here(f"{_SUBPATHS} downward pod")(
    part(lambda: downward(False, field("metadata.labels['a']", "sub")))
)


# What is not served.


for _name, _plural in {
    "CSIInlineVolumes should run through the lifecycle of a CSIDriver": "csidrivers",
    "CSIInlineVolumes should support CSIVolumeSource in Pod API": "csidrivers",
    "CSINodes CSI Conformance should run through the lifecycle of a csinode": "csinodes",
    "CSIStorageCapacity should support CSIStorageCapacities API operations": "csistoragecapacities",
    "StorageClasses CSI Conformance should run through the lifecycle of a StorageClass": (
        "storageclasses"
    ),
    "VolumeAttachment Conformance should apply changes to a volumeattachment status": (
        "volumeattachments"
    ),
    "VolumeAttachment Conformance should run through the lifecycle of a VolumeAttachment": (
        "volumeattachments"
    ),
}.items():
    here(_name)(served("storage.k8s.io/v1", _plural))
for _name in ("apply changes to a pv/pvc status", "run through the lifecycle of a PV and a PVC"):
    here(f"PersistentVolumes CSI Conformance should {_name}")(served("", "persistentvolumes"))
