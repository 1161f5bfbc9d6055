"""`trainyard doctor`: what this machine can do, what is wrong with it, and what to do about it."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainyard.machine.ownership import FolderLost, NotOurs
from trainyard.machine.state_folder import (
    Paths,
    RunningCluster,
    StateError,
    find_cluster,
    state_folder,
)
from trainyard.schema.errors import TrainyardError

if TYPE_CHECKING:
    from trainyard.composition.doctor_runs import DoctorFinding, Python

_SIGNS = {"ok": "ok", "note": "note", "problem": "PROBLEM"}
_COLOURS = {"ok": "green", "note": "yellow", "problem": "red"}
_WIDEST = 120
_SHOWN = 3
"""Of what one check finds; a store may hold hundreds of damaged objects."""
_INDENT = " " * 8
_LEAST_ROOM = 20


@click.command()
@click.option("-o", "output", type=click.Choice(("text", "json")), default="text", help="Format.")
@click.option("-n", "--namespace", metavar="NAME", help="Where you submit jobs on the cluster.")
@click.option("--kubeconfig", metavar="FILE", help="Look at a cluster of this kubeconfig.")
@click.option("--context", metavar="NAME", help="Look at the cluster of this context.")
@click.option(
    "--as-operator", is_flag=True, help="The kubeconfig is the operator's: judge its rights."
)
@click.option(
    "--restore", "restores", is_flag=True, help="Bring back the objects of a damaged state.db."
)
def command(
    output: str,
    namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
    as_operator: bool,
    restores: bool,
) -> int:
    """Say what this machine can do, what is wrong, and what to do about it.

    With --context or --kubeconfig, the same of a cluster and the operator on it: API server,
    clocks, definitions, Lease, lost events, gang scheduler, and the rights of you and the operator.
    Exit code 0 if nothing is wrong, 1 if something is; notes are things that one may want to know.
    """
    if restores:
        from trainyard.composition.doctor_runs import restore_objects

        if kubeconfig is not None or context is not None:
            raise click.UsageError("--restore is about the state folder, not about a cluster")
        click.echo(restore_objects(Paths(state_folder())))
        return 0
    if kubeconfig is not None or context is not None:
        from trainyard.composition.doctor_runs import examine_cluster

        found = examine_cluster(kubeconfig, context, namespace, as_operator=as_operator)
    elif namespace is not None or as_operator:
        raise click.UsageError("--namespace and --as-operator are about a cluster: name --context")
    else:
        found = _examine_machine()
    if output == "json":
        click.echo(json.dumps([each.as_json() for each in found], indent=2))
    else:
        for line in _screen(found):
            click.echo(line)
    return int(any(each.state == "problem" for each in found))


def _examine_machine() -> list[DoctorFinding]:
    from trainyard.composition.doctor_runs import examine_machine

    cluster, folder_problem = None, ""
    try:
        paths = Paths(state_folder())
        cluster = find_cluster(paths.folder)
    except (StateError, FolderLost) as error:
        paths, folder_problem = Paths(Path(os.devnull) / "nowhere"), str(error)
    except (NotOurs, OSError):  # one of the checks reports it
        pass
    python = _python(cluster)
    findings, cluster_problem = _findings(cluster)
    return examine_machine(
        paths,
        cluster,
        python,
        folder_problem=folder_problem,
        cluster_findings=findings,
        cluster_problem=cluster_problem,
    )


def _screen(found: Sequence[DoctorFinding]) -> Iterator[str]:
    """What is well first, in a line each, and what is not last, where it is seen."""
    width = min(shutil.get_terminal_size().columns, _WIDEST) if sys.stdout.isatty() else 0
    counts: Counter[tuple[str, str]] = Counter()
    for state in _SIGNS:
        for each in found:
            if each.state != state:
                continue
            counts[each.check, state] += 1
            if counts[each.check, state] <= _SHOWN:
                yield from _lines(each, width)
        for (check, of), count in counts.items():
            if of == state and count > _SHOWN:
                more = f"{check}: {count - _SHOWN} more; -o json tells of all"
                yield from (_INDENT + line for line in _broken(more, width))
    notes, problems = (sum(f.state == state for f in found) for state in ("note", "problem"))
    if notes or problems:
        yield f"{_counted(problems, 'problem')}, {_counted(notes, 'note')}"


def _lines(found: DoctorFinding, width: int) -> Iterator[str]:
    """`width` 0: no line is broken or cut. What is well has one line."""
    sign, text = _SIGNS[found.state], f"{found.check}: {found.text}"
    head = click.style(f"{sign:<8}", fg=_COLOURS[found.state])
    if found.state == "ok":
        room = _room(width)
        yield head + (text if len(text) <= room else f"{text[: room - 1]}…")
        return
    first, *rest = _broken(text, width)
    yield head + first
    for line in (*rest, *_broken(f"→ {found.fix}" if found.fix else "", width)):
        yield _INDENT + line


def _room(width: int) -> int:
    return max(_LEAST_ROOM, width - len(_INDENT)) if width else sys.maxsize


def _broken(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, _room(width), break_on_hyphens=False)


def _counted(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def _python(cluster: RunningCluster | None) -> Python:
    """The interpreter of replicas that are submitted from here, with its version and torch."""
    from trainyard.api.interpreter_check import Interpreter
    from trainyard.composition.cluster_shape import ClusterShape
    from trainyard.composition.doctor_runs import Python

    interpreter = Interpreter(ClusterShape(), "", cluster_python=cluster.python if cluster else "")
    facts, path = interpreter.facts(), interpreter.environment.get("PATH", "")
    if facts is None:
        return Python(interpreter.python or "", path=path)
    return Python(facts.executable, facts.version, facts.torch, facts.cuda, path, facts.foreign)


def _findings(cluster: RunningCluster | None) -> tuple[dict[str, Any], str]:
    """What a running cluster reports about itself, or why it does not answer."""
    if cluster is None:
        return {}, ""
    from trainyard.api.embedded import findings_of

    try:
        return findings_of(cluster), ""
    except (TrainyardError, ValueError) as error:
        return {}, str(error)
