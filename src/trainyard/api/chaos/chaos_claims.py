"""What a job writes to that can be made full for a while, and what cannot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainyard.client.cluster_target import CommandError
from trainyard.kinds.shared.labels import FOLDER


def unfillable(documents: Iterable[Mapping[str, Any]], shared: frozenset[str]) -> list[str]:
    """The volumes of a manifest's jobs that stay as they are, since their folders are the
    machine's; CommandError where there is no claim but those."""
    objects = list(documents)
    volumes = [volume for each in objects for volume in _volumes(each)]
    claims = {v["persistentVolumeClaim"]["claimName"] for v in volumes if _is_claim(v)}
    own = shared | {each["metadata"]["name"] for each in objects if _names_folder(each)}
    found = {f"claim {name}" for name in claims & own}
    paths = [(volume.get("hostPath") or {}).get("path") for volume in volumes]
    found |= {f"hostPath {path}" for path in paths if path}
    if not claims - own:
        but = f" but {', '.join(sorted(found))}, on this machine's own disk" if found else ""
        raise CommandError(
            f"disk cannot be done: the job writes to nothing that can be made full{but}; mount a "
            "persistentVolumeClaim where it writes, which is no --shared one"
        )
    return sorted(found)


def _volumes(value: Any) -> Iterator[Mapping[str, Any]]:
    """All lists of this name, since kinds differ in where their templates are."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            if key == "volumes" and isinstance(part, list):
                yield from (each for each in part if isinstance(each, Mapping))
            else:
                yield from _volumes(part)
    elif isinstance(value, list):
        for each in value:
            yield from _volumes(each)


def _is_claim(volume: Mapping[str, Any]) -> bool:
    return bool((volume.get("persistentVolumeClaim") or {}).get("claimName"))


def _names_folder(document: Mapping[str, Any]) -> bool:
    return FOLDER in ((document.get("metadata") or {}).get("annotations") or {})
