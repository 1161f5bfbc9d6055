"""``trainyard validate``: every problem of manifests, before anything runs."""

from __future__ import annotations

from pathlib import Path

import click

from trainyard.api.job_manifests import read_manifest
from trainyard.cli.options import manifests
from trainyard.manifest.reader import ReadResult, shown_name
from trainyard.schema.errors import TrainyardError
from trainyard.schema.problems import Problem, Severity


@click.command()
@manifests
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to print the problems.",
)
@click.option("--strict", is_flag=True, help="Count warnings as errors.")
@click.option(
    "--cluster",
    metavar="VERSION",
    help="Also report what Kubernetes of this version, such as 1.27, would refuse (errors), drop "
    "or take for something else (warnings); `current`: of the kubeconfig's cluster.",
)
@click.option("--kubeconfig", metavar="FILE", help="With --cluster current: the kubeconfig.")
@click.option("--context", metavar="NAME", help="With --cluster current: its context.")
def command(
    files: tuple[str, ...],
    output: str,
    strict: bool,
    cluster: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Report every problem of manifests with file, line, column and path.

    Exits with 1 when there is an error.
    """
    if (kubeconfig or context) and cluster != "current":
        raise click.UsageError("--kubeconfig and --context go with --cluster current")
    server = None
    if cluster is not None:
        from trainyard.api.versions import version_of

        server = version_of(cluster, kubeconfig, context)
    results: dict[str, ReadResult] = {}
    unreadable: list[str] = []
    for name in dict.fromkeys(files):
        try:
            results[name] = read_manifest(Path(name), server)
        except TrainyardError as reason:
            unreadable.append(str(reason))
    problems = [problem for result in results.values() for problem in result.problems]
    if output == "json":
        _print_json(problems)
    else:
        for problem in problems:
            click.echo(str(problem))
        _summarise(results, f" for Kubernetes {server[0]}.{server[1]}" if server else "")
    for text in unreadable:
        click.echo(f"error: {text}", err=True)
    if unreadable or any(strict or p.severity is Severity.ERROR for p in problems):
        raise SystemExit(1)


def _summarise(results: dict[str, ReadResult], where: str) -> None:
    for file, result in results.items():
        name = shown_name(file)
        if result.errors:
            click.echo(f"{name}: {_count(result)}")
        else:
            objects = len(result.documents)
            what = f"{objects} object{'s' if objects != 1 else ''} valid{where}"
            click.echo(
                f"{name}: {what}, {_count(result)}" if result.warnings else f"{name}: {what}"
            )


def _count(result: ReadResult) -> str:
    counts = {"error": len(result.errors), "warning": len(result.warnings)}
    return ", ".join(f"{n} {word}{'s' if n != 1 else ''}" for word, n in counts.items() if n)


def _print_json(problems: list[Problem]) -> None:
    import json

    rows = [
        {
            "severity": str(problem.severity),
            "file": problem.file,
            "line": problem.line,
            "column": problem.column,
            "object": problem.object,
            "path": problem.where,
            "message": problem.message,
            "suggestion": problem.suggestion,
        }
        for problem in problems
    ]
    click.echo(json.dumps(rows, indent=2))
