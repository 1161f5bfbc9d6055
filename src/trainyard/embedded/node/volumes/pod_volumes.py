"""A pod's volumes as host folders, and where its containers mount them."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from dataclasses import field
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from trainyard.embedded.node.containers import cgroups
from trainyard.embedded.node.containers.container_environment import (
    NotReady,
    PodContext,
    expand,
    field_value,
    resource_value,
)
from trainyard.embedded.node.runtime_folder import RuntimeFolder
from trainyard.embedded.node.volumes.host_folders import (
    PodRefused,
    containing_folder,
    ensure_folder,
    path_component,
    relative_path,
)
from trainyard.kube import embedded_contract
from trainyard.kube.errors import NotFound
from trainyard.kube.resources import PERSISTENT_VOLUME_CLAIMS
from trainyard.podruntime.filesystem import safe_paths
from trainyard.podruntime.protocol import Bind
from trainyard.schema import quantity
from trainyard.schema.dataclass import dataclass

_DEFAULT_MODE = 0o644
# https://kubernetes.io/docs/concepts/storage/volumes/#hostpath-volume-types
_HOST_PATH_TYPES = {
    "Directory": stat.S_ISDIR,
    "File": stat.S_ISREG,
    "Socket": stat.S_ISSOCK,
    "CharDevice": stat.S_ISCHR,
    "BlockDevice": stat.S_ISBLK,
}


class VolumeSource(NamedTuple):
    """One volume: a path of the host, read-only for all or not; ``private`` as of a Bind."""

    path: str
    read_only: bool = False
    private: bool = True


class VolumeFile(NamedTuple):
    """A file of a volume: its path below the mount, and its mode bits."""

    path: str
    data: bytes
    mode: int


@dataclass(slots=True)
class PodVolumes:
    """Makes the volumes of one pod."""

    context: PodContext
    sources: dict[str, VolumeSource] = field(default_factory=dict)
    written_files: dict[str, list[VolumeFile]] = field(default_factory=dict)
    """The files of each volume that is made of files, by volume name."""
    pending_tmpfs: list[tuple[str, int]] = field(default_factory=list)
    """Folders on which the shim has yet to mount a tmpfs, and its size in bytes (0: no limit)."""

    def prepare(self) -> None:
        """Make every volume; raises NotReady while something that one refers to is missing."""
        for volume in self.context.pod["spec"].get("volumes", ()):
            if volume["name"] not in self.sources:
                self.sources[volume["name"]] = self._make(volume)

    def refresh(self) -> None:
        """Rewrite volumes whose files have changed (decision 301); raises OSError.

        If an object that the volume needs is gone, the files stay.
        """
        for volume in self.context.pod["spec"].get("volumes", ()):
            name = volume["name"]
            if not os.path.isdir(self._runtime_folder_of(name).path):
                continue
            with contextlib.suppress(NotReady, PodRefused):
                files = self._all_files(volume)
                if files is not None and files != self.written_files.get(name):
                    self._write(name, files)

    @property
    def hidden(self) -> tuple[str, ...]:
        """Folders that no pod may see; see NodeSettings."""
        settings = self.context.settings
        return (*settings.hidden, safe_paths.real_path(settings.state_dir))

    def binds(self, container: Mapping[str, Any], env: Mapping[str, str]) -> list[Bind]:
        """What to mount for ``find_container``."""
        binds = []
        for mount in container.get("volumeMounts", ()):
            source = self.sources.get(mount["name"])
            if source is None:
                text = f"container {container['name']} mounts volume {mount['name']!r}, which is "
                raise NotReady("CreateContainerConfigError", text + "not in spec.volumes")
            read_only = bool(mount.get("readOnly")) or source.read_only
            inner = _sub_path(mount, env)
            target = os.path.normpath(os.path.join("/", mount["mountPath"]))
            binds.append(Bind(target, source.path, read_only, inner, source.private))
        return binds

    def _make(self, volume: Mapping[str, Any]) -> VolumeSource:
        if (files := self._all_files(volume)) is not None:
            return self._write(volume["name"], files)
        for kind, make in (
            ("emptyDir", self._empty_dir),
            ("hostPath", self._host_path),
            ("persistentVolumeClaim", self._claim),
        ):
            if kind in volume:
                return make(volume["name"], volume[kind] or {})
        kinds = ", ".join(key for key in volume if key != "name") or "no source"
        self.context.warn(
            "UnsupportedVolume",
            f"volume {volume['name']!r} ({kinds}) cannot be had on this machine; an empty folder "
            "is mounted instead: use a persistentVolumeClaim and --volume, or a hostPath",
        )
        return self._empty_dir(volume["name"], {})

    def _own_folder(self, name: str) -> str:
        path = os.path.join(self.context.folder, "volumes", path_component(name))
        os.makedirs(path, exist_ok=True)
        return path

    def _runtime_folder_of(self, name: str) -> RuntimeFolder:
        return self.context.runtime_folder.child("volumes", path_component(name))

    def _empty_dir(self, name: str, spec: Mapping[str, Any]) -> VolumeSource:
        path = self._own_folder(name)
        os.chmod(path, 0o777)
        group = self.context.pod["spec"].get("securityContext", {}).get("fsGroup")
        if group is not None and os.geteuid() == 0 and self.context.tenant is None:
            os.chown(path, -1, group)
            os.chmod(path, 0o2777)  # what is made in it has the group too
        if spec.get("medium") == "Memory":
            limits = [quantity.parse_int(spec["sizeLimit"])] if spec.get("sizeLimit") else []
            own = [
                cgroups.ContainerLimits.from_container(each).memory
                for each in self.context.pod["spec"]["containers"]
            ]
            limits += [sum(own)] if all(own) else []
            self.pending_tmpfs.append((path, min(limits, default=0)))
        return VolumeSource(path)

    def _all_files(self, volume: Mapping[str, Any]) -> list[VolumeFile] | None:
        """All that the volume is made of; None for one that is not made of files."""
        if (spec := volume.get("projected")) is None:
            return self._files(volume)
        files: list[VolumeFile] = []
        for source in spec.get("sources", ()):
            part = self._files(source, spec.get("defaultMode", _DEFAULT_MODE))
            if part is None:
                self.context.warn(
                    "UnsupportedVolume",
                    f"volume {volume['name']!r}: source {', '.join(source)} has no counterpart "
                    "here",
                )
            files += part or ()
        return files

    def _host_path(self, name: str, spec: Mapping[str, Any]) -> VolumeSource:
        path = spec["path"]
        return self._host_folder(path, spec.get("type", ""), f"volume {name!r}: hostPath {path}")

    def _host_folder(
        self, path: str, kind: str, what: str, read_only: bool = False
    ) -> VolumeSource:
        """A path of the host, looked up with the rights of the pod's user."""
        try:
            with self.context.tenant_rights():
                mode = _found_or_made(path, kind)
                found = safe_paths.real_path(path)
        except FileNotFoundError:
            raise NotReady("FailedMount", f"{what} does not exist") from None
        except OSError as error:
            raise NotReady("FailedMount", f"{what} cannot be used: {error.strerror}") from error
        is_kind = _HOST_PATH_TYPES.get(kind.removesuffix("OrCreate"))
        if is_kind is not None and not is_kind(mode):
            raise NotReady("FailedMount", f"{what} is not a {kind.removesuffix('OrCreate')}")
        return VolumeSource(self._check_visible(found, what), read_only, private=False)

    def _check_visible(self, path: str, what: str) -> str:
        if hidden := containing_folder(path, self.hidden):
            raise PodRefused(
                f"{what} lies in {hidden}, a cluster's own folder, which pods do not see"
            )
        return path

    def _claim(self, name: str, spec: Mapping[str, Any]) -> VolumeSource:
        namespace, claim = self.context.namespace, spec["claimName"]
        read_only = bool(spec.get("readOnly"))
        if own := self._folder_of(claim):
            return self._host_folder(own, "", f"claim {claim!r} stands for {own}, which", read_only)
        mapping = self.context.settings.volumes
        folder = mapping.get(f"{namespace}/{claim}", mapping.get(claim, ""))
        if folder:
            with self.context.tenant_rights():
                is_reached = os.path.isdir(folder)
            if not is_reached:
                who = (
                    ""
                    if (tenant := self.context.tenant) is None
                    else f" that {tenant.name} can reach"
                )
                raise NotReady(
                    "FailedMount",
                    f"claim {claim!r} stands for {folder}, which is not a folder{who}: create it, "
                    f"or name another with --volume {claim}=DIR",
                )
            path = os.path.abspath(folder)
            if path in self.hidden:
                self._check_visible(path, f"claim {claim!r} stands for {folder}, which")
            return VolumeSource(
                path, read_only=read_only, private=bool(containing_folder(path, self.hidden))
            )
        names = path_component(namespace), path_component(claim)
        kept = os.path.join(self.context.settings.state_dir, embedded_contract.CLAIMS_FOLDER)
        path = os.path.join(kept, *names)
        os.makedirs(path, exist_ok=True)
        self.context.give_to_tenant(path)
        if not os.listdir(path):
            self._give_to_user(path)
            self.context.warn(
                "EmptyClaim",
                embedded_contract.empty_claim_message(claim, path),
            )
        return VolumeSource(path, read_only=read_only)

    def _give_to_user(self, path: str) -> None:
        """Let the user and the group that the pod runs as write into an empty folder of ours."""
        if os.geteuid() != 0 or self.context.tenant is not None:
            return
        spec = self.context.pod["spec"]
        shared = spec.get("securityContext", {})
        users = {
            each.get("securityContext", {}).get("runAsUser", shared.get("runAsUser"))
            for each in spec["containers"]
        }
        if len(users) == 1 and (user := users.pop()) is not None:
            os.chown(path, user, -1)
        if (group := shared.get("fsGroup")) is not None:
            os.chown(path, -1, group)
            os.chmod(path, 0o2775)  # what is made in it has the group too

    def _folder_of(self, claim: str) -> str:
        """The folder that the claim itself names (decision 156), or ""."""
        try:
            found = self.context.objects.get(
                PERSISTENT_VOLUME_CLAIMS.full_name, self.context.namespace, claim
            )
        except NotFound:
            return ""
        folder = (found["metadata"].get("annotations") or {}).get(embedded_contract.FOLDER, "")
        return folder if isinstance(folder, str) and folder.startswith("/") else ""

    def _files(
        self, source: Mapping[str, Any], mode: int = _DEFAULT_MODE
    ) -> list[VolumeFile] | None:
        """Of a ConfigMap, a Secret or the pod itself; None for a source of another kind."""
        for kind, name in (("ConfigMap", "configMap"), ("Secret", "secret")):
            if (spec := source.get(name)) is not None:
                return self._object_files(kind, {"defaultMode": mode, **spec})
        if (spec := source.get("downwardAPI")) is not None:
            return self._downward_files({"defaultMode": mode, **spec})
        return None

    def _object_files(self, kind: str, spec: Mapping[str, Any]) -> list[VolumeFile]:
        name = spec.get("secretName") or spec["name"]
        what, optional = f"{kind} {self.context.namespace}/{name}", spec.get("optional")
        items = spec.get("items")
        wanted = None if items is None else [item["key"] for item in items]
        data = self.context.object_data(kind, name, wanted)
        if data is None:
            if optional:
                return []
            raise NotReady("FailedMount", f"{what}, which a volume needs, does not exist")
        default = spec["defaultMode"]
        if items is None:
            return [VolumeFile(key, value, default) for key, value in sorted(data.items())]
        files = []
        for item in items:
            if item["key"] in data:
                files.append(VolumeFile(item["path"], data[item["key"]], item.get("mode", default)))
            elif not optional:
                raise NotReady("FailedMount", f"{what} has no key {item['key']!r}")
        return files

    def _downward_files(self, spec: Mapping[str, Any]) -> list[VolumeFile]:
        files = []
        for item in spec.get("items", ()):
            if "fieldRef" in item:
                text = field_value(self.context, item["fieldRef"]["fieldPath"])
            else:
                reference = item["resourceFieldRef"]
                container = self.context.find_container(reference.get("containerName", ""))
                if container is None:
                    where = f"volume file {item['path']!r}: resourceFieldRef.containerName"
                    raise NotReady("FailedMount", f"{where} names no container of the pod")
                text = resource_value(self.context, container, reference)
            files.append(
                VolumeFile(item["path"], text.encode(), item.get("mode", spec["defaultMode"]))
            )
        return files

    def _write(self, name: str, files: list[VolumeFile]) -> VolumeSource:
        """Replace each file, never writing through what is there, and delete the others."""
        place, before = self._runtime_folder_of(name), self.written_files.get(name, ())
        is_new = ensure_folder(place.path)
        group = self.context.pod["spec"].get("securityContext", {}).get("fsGroup")
        top = os.open(place.path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            parts = ((*os.path.split(relative_path(f.path, f"volume {name!r}")), f) for f in files)
            for head, inside in groupby(parts, itemgetter(0)):
                folder = safe_paths.make(top, head, safe_paths.BENEATH)
                try:
                    for _, last, file in inside:
                        draft = last if is_new else f".{last}.new"
                        _replace_file(folder, last, draft, file, group, self.context)
                finally:
                    os.close(folder)
            for old in {file.path for file in before} - {file.path for file in files}:
                _unlink_beneath(top, relative_path(old, f"volume {name!r}"))
        finally:
            os.close(top)
        self.written_files[name] = files
        return VolumeSource(place.runtime_path, read_only=True)


def leftover_folders(folder: str) -> list[str]:
    """Folders in an ended pod's folder that nobody reads any more.

    An empty /tmp stays until the logs go: ext4 is slow at making files where some were just deleted
    (decision 348).
    """
    volumes, tmp = (os.path.join(folder, name) for name in ("volumes", "tmp"))
    left = [volumes] if os.path.isdir(volumes) else []
    with contextlib.suppress(OSError), os.scandir(tmp) as entries:
        left += [tmp] if any(entries) else []
    return left


def _found_or_made(path: str, kind: str) -> int:
    """The mode of what a hostPath of this type names."""
    with contextlib.suppress(FileExistsError):
        if kind == "DirectoryOrCreate":
            os.makedirs(path, mode=0o755)
        elif kind == "FileOrCreate":
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
    return os.stat(path).st_mode


def _sub_path(mount: Mapping[str, Any], env: Mapping[str, str]) -> str:
    """The part of the volume that is mounted; "" for all of it."""
    what = f"volume {mount['name']!r}"
    if path := mount.get("subPath"):
        return relative_path(path, what)
    try:
        return relative_path(expand(mount.get("subPathExpr", ""), env), what)
    except PodRefused as error:  # its variables may become others
        raise NotReady("CreateContainerConfigError", str(error)) from None


def _unlink_beneath(top: int, path: str) -> None:
    head, _, last = path.rpartition("/")
    folder = safe_paths.make(top, head, safe_paths.BENEATH)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(last, dir_fd=folder)
    finally:
        os.close(folder)


def _replace_file(
    folder: int, name: str, draft: str, file: VolumeFile, group: int | None, context: PodContext
) -> None:
    """Under the name `draft` first, which is the same where nobody sees the volume yet."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    try:
        fd = os.open(draft, flags, 0o600, dir_fd=folder)
    except FileExistsError:  # another item's, or of somebody who did not come to the end
        os.unlink(draft, dir_fd=folder)
        fd = os.open(draft, flags, 0o600, dir_fd=folder)
    try:
        data = memoryview(file.data)
        while data:
            data = data[os.write(fd, data) :]
        context.give_to_tenant(fd)
        if group is not None:
            with contextlib.suppress(PermissionError):
                os.fchown(fd, -1, group)
        os.fchmod(fd, file.mode | (0o040 if group is not None else 0))
    finally:
        os.close(fd)
    if draft != name:
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
