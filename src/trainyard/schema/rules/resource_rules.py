"""What containers ask for: names and amounts of resources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from trainyard.schema import quantity
from trainyard.schema.object_names import is_qualified_name
from trainyard.schema.problems import REQUIRED, Path, Problem, error, suggest
from trainyard.schema.rules.common_rules import Object, shown, unique

_STANDARD = ("cpu", "memory", "ephemeral-storage")
_OF_PODS = ("cpu", "memory")
_HUGE = "hugepages-"
_OWN_DOMAIN = "kubernetes.io/"
_QUOTA = "requests."


def requirements(resources: Object, path: Path, claims: list[str]) -> Iterator[Problem]:
    """Problems of a container's `resources`; `claims` are the names of the pod's."""
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            here = (*path, field, name)
            yield from _name(name, here)
            yield from _amount(name, amount, here)
    for name, amount in requests.items():
        here = (*path, "requests", name)
        if name in limits:
            asked, most = quantity.parse(amount), quantity.parse(limits[name])
            if asked != most and not _is_elastic(name):
                yield error(here, f"{amount} is not the limit, {limits[name]}, as it must be")
            elif asked > most:
                yield error(here, f"{amount} is more than the limit, {limits[name]}")
        elif not _is_elastic(name):
            text = f"must be given as well: {name} is not shared, so request and limit are equal"
            yield error((*path, "limits", name), text)
    named = {*requests, *limits}
    if any(name.startswith(_HUGE) for name in named) and not named & {"cpu", "memory"}:
        yield error(path, "huge pages need a request or limit of cpu or memory beside them")
    yield from _claims(resources.get("claims") or (), (*path, "claims"), claims)


def pod_resources(spec: Object, path: Path) -> Iterator[Problem]:
    """Problems of a pod's own `resources`, and of its `overhead`."""
    for name, amount in (spec.get("overhead") or {}).items():
        yield from _name(name, (*path, "overhead", name))
        yield from _amount(name, amount, (*path, "overhead", name))
    own, here = spec.get("resources") or {}, (*path, "resources")
    if own.get("claims"):
        yield error((*here, "claims"), "belong to containers")
    yield from requirements({**own, "claims": ()}, here, [])
    for field in ("limits", "requests"):
        for name, amount in (own.get(field) or {}).items():
            if name not in _OF_PODS and not name.startswith(_HUGE):
                text = f"belongs to containers; a pod has {', '.join(_OF_PODS)} and huge pages"
                yield error((*here, field, name), text)
            else:
                asked = [_asked(each, field, name) for each in spec["containers"]]
                most = sum(asked) if field == "requests" else max(asked)
                if most > quantity.parse(amount):
                    text = f"{amount} is less than what containers ask for, {most:f}"
                    yield error((*here, field, name), text)


def _asked(container: Object, field: str, name: str) -> Decimal:
    """The amount that a container requests, or its limit; a limit alone is the request too."""
    given = container.get("resources") or {}
    found = {**(given.get("limits") or {})} if field == "requests" else {}
    found.update(given.get(field) or {})
    return quantity.parse(found.get(name, 0))


def _claims(used: Sequence[Object], path: Path, known: list[str]) -> Iterator[Problem]:
    yield from unique([(c["name"], c.get("request")) for c in used], path, "name", "claim named")
    for index, claim in enumerate(used):
        if not claim["name"]:
            yield error((*path, index, "name"), REQUIRED)
        elif claim["name"] not in known:
            text = f"there is no resource claim {shown(claim['name'])}"
            yield error((*path, index, "name"), text, suggest(claim["name"], known))


def _name(name: str, path: Path) -> Iterator[Problem]:
    if not is_qualified_name(name):
        yield error(path, f"{shown(name)} is not a qualified name such as example.com/gpu")
    elif "/" not in name:
        if name not in _STANDARD and not name.startswith(_HUGE):
            text = f"is no resource; use {', '.join(_STANDARD)}, or a name such as nvidia.com/gpu"
            yield error(path, f"{shown(name)} {text}", suggest(name, _STANDARD))
    elif not _is_native(name) and (name.startswith(_QUOTA) or not is_qualified_name(_QUOTA + name)):
        yield error(path, f"{shown(name)} cannot be the name of a resource")


def _amount(name: str, amount: str | int | float, path: Path) -> Iterator[Problem]:
    value = quantity.parse(amount)
    if value < 0:
        yield error(path, f"must not be negative, is {amount}")
    elif not _is_native(name) and value != value.to_integral_value():
        yield error(path, f"must be a whole number, is {amount}")
    elif name.startswith(_HUGE):
        size = quantity.parse(name.removeprefix(_HUGE)) if _is_size(name) else 0
        if size and value % size:
            yield error(path, f"{amount} is not a multiple of the size of its pages")


def _is_size(name: str) -> bool:
    try:
        return quantity.parse(name.removeprefix(_HUGE)) > 0
    except ValueError:
        return False


def _is_native(name: str) -> bool:
    return "/" not in name or _OWN_DOMAIN in name


def _is_elastic(name: str) -> bool:
    """More of it may be promised than there is."""
    return _is_native(name) and not name.startswith(_HUGE)
