"""`trainyard chaos`: a job under faults, and what they cost."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainyard.cli.options import cluster_options
from trainyard.cli.text_output import table
from trainyard.composition.cluster_shape import ClusterShape
from trainyard.machine.state_folder import require_linux
from trainyard.schema import duration
from trainyard.schema.errors import TrainyardError

if TYPE_CHECKING:
    from trainyard.api.chaos.chaos_report import ChaosResult, Report, Struck

_FAULTS = ("kill", "stop", "hang", "slow", "partition", "controller", "server", "disk")
_USUAL = ("kill", "stop", "slow", "partition", "controller", "server")
_SEEDS = 1 << 32


def _seconds(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        found = duration.parse(text).total_seconds()
    except TrainyardError as error:
        raise click.BadParameter(str(error)) from error
    if found <= 0:
        raise click.BadParameter("it has to be longer than nothing")
    return found


def _faults(_: click.Context, __: click.Parameter, text: str | None) -> tuple[str, ...]:
    names = tuple(name for name in (text or "").split(",") if name)
    for name in names:
        if name not in _FAULTS:
            raise click.BadParameter(f"{name!r} is none of {', '.join(_FAULTS)}")
    return names


@click.command()
@click.option(
    "-f", "--file", "--filename", "file", required=True, metavar="FILE", help="A job's manifest."
)
@click.option(
    "--faults",
    metavar="FAULT[,FAULT...]",
    callback=_faults,
    help=f"Of {', '.join(_FAULTS)}; by default {', '.join(_USUAL)}.",
)
@click.option("--seed", type=click.IntRange(min=0), help="For the same schedule again.")
@click.option(
    "--every",
    metavar="DURATION",
    callback=_seconds,
    help="Between two faults; by default a quarter of the time that the job takes without, at most "
    "1m.",
)
@click.option(
    "--lasting",
    metavar="DURATION",
    callback=_seconds,
    help="How long a stop, a slow rank, a partition and a full disk last; by default a quarter of "
    "the time between two faults.",
)
@click.option(
    "--patience",
    metavar="DURATION",
    default="2m",
    show_default=True,
    callback=_seconds,
    help="After which a hang is ended that nobody else has ended.",
)
@click.option("--most", type=click.IntRange(min=1), metavar="N", help="No more faults than these.")
@click.option(
    "--timeout",
    metavar="DURATION",
    callback=_seconds,
    help="Give up a run after this; by default ten times what the job takes without faults, and "
    "10m.",
)
@click.option(
    "--baseline",
    metavar="REPORT",
    help="The run without faults of an earlier report (-o json), instead of another one.",
)
@click.option(
    "--result",
    "results",
    multiple=True,
    metavar="CLAIM:PATH",
    help="A file that should be the same; also a PATH on this machine. Repeatable.",
)
@click.option(
    "--shared",
    multiple=True,
    metavar="CLAIM",
    help="Do not copy the folder of this claim for each run, since the job only reads it. "
    "Repeatable.",
)
@click.option("-o", "--output", type=click.Choice(["json"]), help="The report as JSON.")
@cluster_options
def command(
    file: str,
    faults: tuple[str, ...],
    seed: int | None,
    every: float | None,
    lasting: float | None,
    patience: float,
    most: int | None,
    timeout: float | None,
    baseline: str | None,
    results: tuple[str, ...],
    shared: tuple[str, ...],
    output: str | None,
    options: ClusterShape,
) -> int:
    """Run a job with real faults, and report what they cost.

    It runs twice, each time on a cluster of its own that is gone afterwards: once without faults,
    and once with a fault every now and then, drawn from a seed. A claim without --volume is an
    empty folder, and one with it a copy of that folder. Exit code 0 when it ended as it did without
    faults, 1 when not, 130 when interrupted.
    """
    require_linux()
    from trainyard.api.chaos.chaos_comparison import Wishes, compared, read_baseline
    from trainyard.api.chaos.chaos_schedule import Fault
    from trainyard.cli.manifest_input import read_jobs

    wishes = Wishes(
        faults=tuple(map(Fault, faults or _USUAL)),
        are_chosen=bool(faults),
        seed=random.randrange(_SEEDS) if seed is None else seed,
        every=every,
        lasting=lasting,
        patience=patience,
        most=most,
        limit=timeout,
        baseline=read_baseline(_read_text(baseline)) if baseline else None,
        results=results,
        shared=frozenset(shared),
    )
    found = read_jobs(file, None, is_local=True)
    report = compared(found, options, wishes, lambda text: click.echo(text, err=True))
    if output:
        click.echo(json.dumps(report.content(), indent=2, ensure_ascii=False))
    else:
        _print(report)
    return 1 if report.differences else 0


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise TrainyardError(f"cannot read {path}: {reason}") from error


def _print(report: Report) -> None:
    click.echo(
        table(("AT", "FAULT", "WHOM", "LASTED", "BACK AFTER", "SEEN"), map(_row, report.struck))
    )
    click.echo()
    rows = (("without faults", report.baseline), ("with faults", report.under_faults))
    heads = ("", "ENDED", "TOOK", "RESTARTS", "TRAINING")
    click.echo(table(heads, (_result(name, result) for name, result in rows)))
    click.echo()
    count = len(report.struck)
    faults = f"{count} fault{'' if count == 1 else 's'}"
    click.echo(f"{faults}, seed {report.seed}: {report.ratio:.2f} times as long")
    if report.differences:
        click.echo(f"the result is not the same: {'; '.join(report.differences)}")
    else:
        click.echo(_same(report))
    if metrics := report.other_metrics:
        click.echo(f"reported last: {', '.join(metrics)}")
    for note in report.notes:
        click.echo(note)


def _same(report: Report) -> str:
    count = len(report.baseline.files)
    if not count:
        return "it ended the same way; what it wrote was not compared, as no --result names it"
    return f"the result is the same, {count} file{'' if count == 1 else 's'} included"


def _row(struck: Struck) -> list[object]:
    return [
        f"{struck.at:.1f}s",
        struck.fault,
        struck.target,
        f"{struck.seconds:.1f}s" if struck.seconds >= 1 else "",
        "" if struck.recovered is None else f"{struck.recovered:.1f}s",
        "; ".join(struck.seen),
    ]


def _result(name: str, result: ChaosResult) -> list[object]:
    share = "" if result.share is None else f"{100 * result.share:.0f} %"
    return [name, result.phase, f"{result.seconds:.1f}s", result.restarts, share]
