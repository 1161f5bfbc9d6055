"""Options of the clients, and what is wrong with some that were given."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypedDict

from trainyard.client.cluster_target import CommandError


class RunOptions(TypedDict, total=False):
    """How a function or a script is run."""

    replicas: int
    """How many pods, each with a process of the function; 1 by default."""
    processes: int
    """In each replica; by default one a GPU of it, without GPUs 1."""
    gpus: int
    """Of each replica; by default this machine's, shared out evenly."""
    launcher: str
    """`plain`, which tells each process its rank by the environment, or `torchrun`; by default the
    former, unless there are several processes or the job is elastic."""
    name: str
    """Of the job; by default the function's, with some letters behind."""
    env: Mapping[str, str | None]
    """Variables of the replicas. A value stands in the job's spec, which others may read; None is
    the value that this process has, which goes by a Secret of the job."""
    mounts: dict[str, str]
    """Where in the replicas a folder (on a cluster, a claim) is mounted, by the folder, which is
    made if missing."""
    restarts: int
    """How often it is started again after a failure; 0 by default."""
    elastic: tuple[int, int]
    """The least and the most replicas of an elastic job."""
    queue: str
    """The queue in which it waits for its turn."""
    timeout: int
    """Seconds after which it fails."""
    image: str
    """What the replicas run on a cluster of a kubeconfig, where it is needed."""


class ScriptOptions(RunOptions, total=False):
    """Options of scripts alone."""

    module: bool
    """It is the name of a module, as with `python -m`."""
    check: bool
    """Whether to look, before anything starts, if what it imports is installed; True by default."""


_LEAST = {"replicas": 1, "processes": 1, "gpus": 0, "restarts": 0, "timeout": 1}


_MAPPINGS = ("env", "mounts", "volumes", "resources")


def several(given: Any) -> list[Any]:
    """One or more, as a list; a text is one."""
    is_one = isinstance(given, str) or not isinstance(given, Iterable)
    return [given] if is_one else list(given)


def words(given: Any) -> list[str]:
    """Arguments of a command or a script; a text is split as a shell would.

    Raises CommandError for a text with a quotation that does not end.
    """
    if not isinstance(given, str):
        return [str(each) for each in several(given)]
    try:
        return shlex.split(given)
    except ValueError as error:
        raise CommandError(f"{given!r} cannot be split into words: {error}") from None


def image_pairs(given: Any) -> tuple[tuple[str, str], ...]:
    """One pair of a pattern of images and an environment, or several; raises CommandError."""
    pairs = [given] if _is_image_pair(given) else several(given)
    if not all(map(_is_image_pair, pairs)):
        example = "('pytorch/*', '/envs/torch')"
        raise CommandError(
            f"images={given!r}: they are pairs of a pattern and an environment: [{example}]"
        )
    return tuple((pattern, os.fspath(environment)) for pattern, environment in pairs)


def _is_image_pair(value: Any) -> bool:
    is_pair = isinstance(value, tuple | list) and len(value) == 2
    return is_pair and isinstance(value[0], str) and isinstance(value[1], str | os.PathLike)


def check(options: Mapping[str, Any], known: type) -> None:
    """Refuse an option that is not known, or that cannot be (decision 162).

    `known` is a TypedDict. Raises TypeError for the one, CommandError for the other.
    """
    names = sorted(known.__optional_keys__)  # type: ignore[attr-defined]
    for name, value in options.items():
        if name not in names:
            close = get_close_matches(name, names, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names)}"
            raise TypeError(f"there is no option {name!r}: {hint}")
        if name in _MAPPINGS and not isinstance(value, Mapping):
            raise CommandError(f"{name}={value!r}: it is a dict, such as {{'NAME': 'VALUE'}}")
        least = _LEAST.get(name)
        if least is not None and not (_is_number(value) and value >= least):
            raise CommandError(f"{name}={value!r}: it is a whole number, {least} or more")
    _check_env(options.get("env", {}))
    if (launcher := options.get("launcher")) is not None:
        _check_launcher(launcher)
    if (elastic := options.get("elastic")) is not None:
        _check_elastic(elastic, options.get("replicas"))


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_env(env: Mapping[str, Any]) -> None:
    for name, value in env.items():
        if value is None and name not in os.environ:
            raise CommandError(f"env: {name} is not set in this process; give it a value")
        if not isinstance(value, str | None):
            raise CommandError(f"env: {name}={value!r}: it is text, or None for what is set here")


def _check_launcher(launcher: Any) -> None:
    from trainyard.kinds.kind_registry import kinds_by_launcher

    if launcher not in kinds_by_launcher():
        raise CommandError(f"launcher={launcher!r}: it is one of {', '.join(kinds_by_launcher())}")


def _check_elastic(elastic: Any, replicas: int | None) -> None:
    is_pair = isinstance(elastic, Sequence) and len(elastic) == 2 and all(map(_is_number, elastic))
    if not is_pair or not 1 <= elastic[0] <= elastic[1]:
        raise CommandError(f"elastic={elastic!r}: it is the least and the most replicas: (2, 8)")
    if replicas is not None and not elastic[0] <= replicas <= elastic[1]:
        raise CommandError(f"replicas={replicas} is not within elastic={elastic!r}")
