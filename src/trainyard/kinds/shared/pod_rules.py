"""Rules about pod templates that every API server would apply once the pod is created.

Found here, they stop a job before anything runs (decision 10).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from posixpath import normpath
from typing import Any

from trainyard.kinds.kind import Kind
from trainyard.kinds.shared import volume_rules
from trainyard.schema import quantity
from trainyard.schema.names import is_plain_label
from trainyard.schema.problems import Path, Problem, error, suggest

_LONGEST_WORD = 128 << 10
"""Of an argument or a variable, with the end of its text: MAX_ARG_STRLEN, see execve(2)."""


def containers(template: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The containers of a template, none when it has no spec."""
    return list((template.get("spec") or {}).get("containers") or ())


def container_of(template: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The container of this name; empty if the template has none."""
    return next((each for each in containers(template) if each.get("name") == name), {})


def trainer(
    template: Mapping[str, Any], kind: Kind, replica_type: str
) -> tuple[int, Mapping[str, Any]] | None:
    """The container that trains in pods of a type, and its place; None without containers."""
    found = containers(template)
    names = [container["name"] for container in found]
    name = kind.training_container(replica_type, names)
    return (names.index(name), found[names.index(name)]) if found else None


def gpu_count(container: Mapping[str, Any]) -> int:
    """GPUs that a container asks for: resources named ``…/gpu`` or MIG slices."""
    resources = container.get("resources") or {}
    wanted = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return sum(
        quantity.parse_int(amount)
        for name, amount in wanted.items()
        if name.endswith("/gpu") or name.startswith("nvidia.com/mig-")
    )


def check_template(
    template: Mapping[str, Any], path: Path, *, needs_container: bool = True
) -> list[Problem]:
    """Problems of names and references within a template."""
    problems: list[Problem] = []
    where = (*path, "spec", "containers")
    found = containers(template)
    if not found:
        return [error(where, "needs at least one container")] if needs_container else []
    spec = template["spec"]
    volumes = [volume["name"] for volume in spec.get("volumes") or ()]
    problems += _names(volumes, (*path, "spec", "volumes"), "volume")
    for index, volume in enumerate(spec.get("volumes") or ()):
        problems += volume_rules.check_volume(volume, (*path, "spec", "volumes", index))
    every = [("containers", found), ("initContainers", spec.get("initContainers") or [])]
    names = [c["name"] for _, group in every for c in group]
    for key, group in every:
        base = (*path, "spec", key)
        problems += _names([c["name"] for c in group], base, "container")
        for index, container in enumerate(group):
            problems += _mounts(container, volumes, (*base, index))
            problems += volume_rules.check_mounts_of(container, (*base, index))
            problems += _resources(container, (*base, index))
            problems += _process(container, (*base, index))
    init = {c["name"] for c in every[1][1]}
    for index, container in enumerate(found):
        if container["name"] in init and names.count(container["name"]) > 1:
            problems.append(
                error((*where, index, "name"), f"'{container['name']}' is an init container's name")
            )
    return problems


def _process(container: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    """What no program on Linux can be started with."""
    words = [
        ((*path, field, index), str(word))
        for field in ("command", "args")
        for index, word in enumerate(container.get(field) or ())
    ]
    for index, variable in enumerate(container.get("env") or ()):
        name, here = str(variable["name"]), (*path, "env", index)
        if not name or "=" in name or not name.isprintable():
            yield error((*here, "name"), f"{name[:63]!r} cannot be the name of a variable")
        words.append(((*here, "value"), f"{name}={variable.get('value') or ''}"))
    if (container.get("command") or ["program"])[0] == "":
        yield error((*path, "command", 0), "is empty; name the program")
    for here, word in words:
        if "\0" in word:
            yield error(here, "holds a NUL character, which ends a word for every program")
        elif len(word.encode(errors="surrogatepass")) >= _LONGEST_WORD:
            text = f"is longer than the {_LONGEST_WORD} bytes that Linux allows; pass it in a file"
            yield error(here, text)


def check_mounts(
    template: Mapping[str, Any], reserved: Iterable[str], path: Path
) -> Iterator[Problem]:
    """Refuses mounts on, or below, paths that belong to the controller (decision 5)."""
    pod = template.get("spec") or {}
    for key in ("containers", "initContainers"):
        for index, container in enumerate(pod.get(key) or ()):
            for number, mount in enumerate(container.get("volumeMounts") or ()):
                place = normpath(mount["mountPath"])
                if any(place == name or place.startswith(f"{name}/") for name in reserved):
                    yield error(
                        (*path, "spec", key, index, "volumeMounts", number, "mountPath"),
                        f"{place} belongs to the controller; mount elsewhere",
                    )


def _names(names: Iterable[str], path: Path, what: str) -> Iterator[Problem]:
    seen: Counter[str] = Counter()
    for index, name in enumerate(names):
        seen[name] += 1
        if not is_plain_label(name):
            yield error(
                (*path, index, "name"),
                f"'{name[:63]}' is no {what} name; use lower-case letters, digits and '-'",
            )
        elif seen[name] == 2:
            yield error((*path, index, "name"), f"a second {what} named '{name}'")


def _mounts(container: Mapping[str, Any], volumes: list[str], path: Path) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        here = (*path, "volumeMounts", index)
        if mount["name"] not in volumes:
            message = f"there is no volume named '{mount['name']}'"
            yield error((*here, "name"), message, suggest(mount["name"], volumes))
        if mount["mountPath"] in seen:
            yield error((*here, "mountPath"), f"'{mount['mountPath']}' is mounted twice")
        seen.add(mount["mountPath"])


def _resources(container: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    resources = container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name, amount in requests.items():
        here = (*path, "resources", "requests", name)
        if quantity.parse(amount) < 0:
            yield error(here, f"must not be negative, is {amount}")
        elif name in limits and quantity.parse(amount) > quantity.parse(limits[name]):
            yield error(here, f"{amount} is more than the limit, {limits[name]}")
    for name, amount in limits.items():
        if quantity.parse(amount) < 0:
            yield error((*path, "resources", "limits", name), f"must not be negative, is {amount}")
