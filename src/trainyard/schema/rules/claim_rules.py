"""PersistentVolumeClaims."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.schema import quantity
from trainyard.schema.problems import REQUIRED, Path, Problem, error, suggest
from trainyard.schema.rules.common_rules import Object, choice, object_name, required, shown
from trainyard.schema.rules.selector_rules import label_selector

_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")


def claim(obj: Object) -> Iterator[Problem]:
    """Problems of a PersistentVolumeClaim."""
    yield from claim_spec(obj.get("spec") or {}, ("spec",))


def claim_spec(spec: Object, path: Path) -> Iterator[Problem]:
    """Problems of its spec, which a volume of a pod may have as well."""
    yield from _modes(spec, path)
    here = (*path, "resources", "requests", "storage")
    asked = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if asked is None:
        yield error(here, REQUIRED)
    elif quantity.parse(asked) <= 0:
        yield error(here, f"must be greater than 0, is {asked}")
    if name := spec.get("storageClassName"):
        yield from object_name(name, (*path, "storageClassName"), "name of a storage class")
    yield from choice(spec, path, "volumeMode", ("Filesystem", "Block"))
    yield from label_selector(spec.get("selector"), (*path, "selector"))
    for field in ("dataSource", "dataSourceRef"):
        if (source := spec.get(field)) is not None:
            yield from required(source, (*path, field), "kind", "name")


def _modes(spec: Object, path: Path) -> Iterator[Problem]:
    modes = spec.get("accessModes") or ()
    if not modes:
        yield error((*path, "accessModes"), REQUIRED)
    for index, mode in enumerate(modes):
        if mode not in _MODES:
            text = f"must be one of {', '.join(_MODES)}, not {shown(mode)}"
            yield error((*path, "accessModes", index), text, suggest(mode, _MODES))
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        yield error((*path, "accessModes"), "ReadWriteOncePod cannot be combined with others")
