"""Where the logs of a TensorBoard are: folders in claims, and what has to be fetched.

All sources of a spec are combined. A source that cannot be served gets a message, and the others
are served without it (decision 62).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from trainyard.kinds.tensorboard.spec import TensorBoardSpec, inside_claim
from trainyard.schema.dataclass import dataclass

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_CLAIM_FILESET = "t9k://pvc/"
_STORE_FILESET = "t9k://minio/"


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder in a claim; ``path`` is relative to the claim's root, "" for all of it."""

    claim: str
    path: str


@dataclass(frozen=True, slots=True)
class Remote:
    """Addresses that one set of credentials opens; ``secret`` is "" for web servers."""

    secret: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sources:
    """What to show; ``unserved`` are sentences, each about one source that is left out."""

    folders: tuple[Folder, ...] = ()
    remotes: tuple[Remote, ...] = ()
    unserved: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.folders or self.remotes)


def sources(spec: TensorBoardSpec) -> Sources:
    """The log sources of a spec, old fields and new ones together, each once."""
    folders: dict[Folder, None] = {}
    remotes: dict[str, dict[str, None]] = {}
    unserved: dict[str, None] = {}
    for claim, path in _claims(spec):
        inner = inside_claim(path)
        if inner is None:
            unserved[f"folder '{path}' leaves the claim {claim}"] = None
        else:
            folders[Folder(claim, inner)] = None
    for secret, address in _stores(spec):
        if _has_bucket(address):
            remotes.setdefault(secret, {})[address] = None
        else:
            unserved[f"'{address}' is no address s3://BUCKET/PREFIX/"] = None
    for address in _pages(spec):
        if urlsplit(address).scheme in ("http", "https") and urlsplit(address).netloc:
            remotes.setdefault("", {})[address] = None
        else:
            unserved[f"'{address}' is no address http://… or https://…"] = None
    for fileset in spec.training_log_filesets:
        if not fileset.startswith((_CLAIM_FILESET, _STORE_FILESET)):
            unserved[f"fileset '{fileset}' is neither {_CLAIM_FILESET}… nor {_STORE_FILESET}…"] = (
                None
            )
    return Sources(
        tuple(folders),
        tuple(Remote(secret, tuple(addresses)) for secret, addresses in remotes.items()),
        tuple(unserved),
    )


def mounted(spec: TensorBoardSpec, pod: Mapping[str, Any], container: str) -> tuple[str, ...]:
    """The paths in a container of the log folders in claims, as far as it mounts them."""
    claims = {
        volume["name"]: volume["persistentVolumeClaim"].get("claimName")
        for volume in pod.get("volumes") or ()
        if volume.get("persistentVolumeClaim")
    }
    mounts = next(c for c in pod["containers"] if c["name"] == container).get("volumeMounts") or ()
    found: dict[str, None] = {}
    for folder in sources(spec).folders:
        for mount in mounts:
            root = inside_claim(mount.get("subPath") or "")
            if claims.get(mount["name"]) != folder.claim or mount.get("subPathExpr"):
                continue
            if root is not None and f"{folder.path}/".startswith(f"{root}/" if root else ""):
                inner = folder.path[len(root) :].strip("/")
                found[posixpath.join(mount["mountPath"], inner).rstrip("/")] = None
    return tuple(found)


def folder_name(*parts: str) -> str:
    """A file name for logs of some origin."""
    return _UNSAFE.sub("-", "-".join(part for part in parts if part)).strip("-.") or "logs"


def _claims(spec: TensorBoardSpec) -> Iterator[tuple[str, str]]:
    for fileset in spec.training_log_filesets:
        if fileset.startswith(_CLAIM_FILESET):
            claim, _, path = fileset.removeprefix(_CLAIM_FILESET).partition("/")
            yield claim, path
    for claim_logs in spec.log_dir.pvc if spec.log_dir else ():
        for path in claim_logs.sub_path or ("",):
            yield claim_logs.name, path


def _stores(spec: TensorBoardSpec) -> Iterator[tuple[str, str]]:
    for fileset in spec.training_log_filesets:
        if fileset.startswith(_STORE_FILESET):
            secret, _, address = fileset.removeprefix(_STORE_FILESET).partition("/")
            yield secret, f"s3://{address}"
    if spec.log_dir and spec.log_dir.s3:
        for uri in spec.log_dir.s3.uri:
            yield spec.log_dir.s3.secret_ref.name, uri


def _pages(spec: TensorBoardSpec) -> Iterator[str]:
    if spec.log_dir and spec.log_dir.http:
        yield from spec.log_dir.http.url


def _has_bucket(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme == "s3" and bool(parts.netloc)
