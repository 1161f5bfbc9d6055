"""Rules of pod templates, and how to read them.

An API server would apply most of these rules when the pod is created. Here they refuse the job
before anything runs (decision 10).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from posixpath import normpath
from typing import Any

from trainyard.kinds.kind import Kind
from trainyard.kinds.shared.pods.shell_signal_rules import check_shell
from trainyard.schema import quantity
from trainyard.schema.problems import Path, Problem, error, warning
from trainyard.schema.rules.annotation_rules import pod_annotation_rules
from trainyard.schema.rules.common_rules import labels, qualified
from trainyard.schema.rules.pod_spec_rules import pod_spec
from trainyard.schema.structural_schema import as_word_list

_LONGEST_WORD = 128 << 10
"""Bytes of an argument or variable, its final NUL included: MAX_ARG_STRLEN, see execve(2)."""


def containers(template: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The containers of a template, none when it has no spec."""
    return list((template.get("spec") or {}).get("containers") or ())


def container_of(template: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The container of this name; empty if the template has none."""
    return next((each for each in containers(template) if each.get("name") == name), {})


def trainer(
    template: Mapping[str, Any], kind: Kind, replica_type: str
) -> tuple[int, Mapping[str, Any]] | None:
    """Index and container that trains in pods of a type; None for a pod without containers."""
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
    """Problems that would keep the API server from creating the pods of a template."""
    if not containers(template):
        where = (*path, "spec", "containers")
        return [error(where, "needs at least one container")] if needs_container else []
    metadata = template.get("metadata") or {}
    problems = list(labels(metadata.get("labels") or {}, (*path, "metadata", "labels")))
    for key in metadata.get("annotations") or {}:
        problems += qualified(key, (*path, "metadata", "annotations"))
    spec = template["spec"]
    given = metadata.get("annotations") or {}
    problems += pod_annotation_rules(given, spec, (*path, "metadata", "annotations"))
    problems += pod_spec(spec, (*path, "spec"), is_template=True)
    for key in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(key) or ()):
            problems += _process(container, (*path, "spec", key, index))
    for index, container in enumerate(spec["containers"]):
        problems += check_shell(container, (*path, "spec", "containers", index))
    return problems


def _process(container: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    """Commands and variables with which Linux cannot start a program."""
    words = [
        ((*path, field, index), str(word))
        for field in ("command", "args")
        for index, word in enumerate(container.get(field) or ())
    ]
    for index, variable in enumerate(container.get("env") or ()):
        word = f"{variable['name']}={variable.get('value') or ''}"
        words.append(((*path, "env", index, "value"), word))
    program = str((container.get("command") or ["program"])[0])
    if program == "":
        yield error((*path, "command", 0), "is empty; name the program")
    elif len(program.split()) > 1:
        text = "is the name of one program, blanks and all; write every word for itself"
        yield warning((*path, "command", 0), f"{text}: {as_word_list(program)}")
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
