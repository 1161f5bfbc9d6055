"""`trainyard run`: a script, or every job of a manifest, from submission to its end.

The shim is started before anything heavy is imported; `running` does the rest.
"""

from __future__ import annotations

import gc
import os

import click

from trainyard.api.scripts.script_drafts import Draft
from trainyard.api.scripts.script_shape import ScriptShape
from trainyard.cli.options import cluster_options, refuse_script, snapshot_option, where_options
from trainyard.cli.run_sources import FileSource, ScriptSource, Source
from trainyard.cli.script_options import ScriptCommand, is_manifest, script_options
from trainyard.composition.cluster_shape import ClusterShape
from trainyard.machine.state_folder import RunningCluster, find_cluster, require_linux
from trainyard.schema.errors import TrainyardError


@click.command(cls=ScriptCommand, options_metavar="[OPTIONS]")
@click.option(
    "-f", "--file", "--filename", "file", metavar="FILE", help="The manifest; - reads stdin."
)
@click.option(
    "--keep",
    is_flag=True,
    help="Run on the background cluster, started if need be, and leave it and the job there, "
    "after Ctrl-C too.",
)
@click.option(
    "-d",
    "--detach",
    is_flag=True,
    help="The same, without waiting for the end: leave the job there as soon as it is created.",
)
@click.option(
    "--replace",
    "replaces",
    is_flag=True,
    help="Delete jobs of the same name first, and wait until they and their pods are gone.",
)
@snapshot_option
@script_options
@cluster_options
@where_options
def command(
    words: tuple[str, ...],
    file: str | None,
    keep: bool,
    detach: bool,
    replaces: bool,
    snapshots: bool,
    script: ScriptShape,
    options: ClusterShape,
    place: tuple[str | None, str | None, str | None],
) -> int:
    """Run SCRIPT, or the jobs in a manifest, to their end.

    What follows SCRIPT is passed to it. Uses the embedded cluster that is up, unless it lacks an
    option, or one of its own, which ends with the command; with --kubeconfig or --context that
    cluster, where SCRIPT, if it is one file, is carried along. Exit code 0 when all jobs succeeded,
    1 when one failed, 130 when interrupted.
    """
    if not any(place[1:]):
        require_linux()
    gc.disable()  # imports make nothing but lasting objects; `running` turns it on again
    on_cluster = any(place[1:])
    if on_cluster and (keep or not options.is_default):
        raise click.UsageError("on a cluster there is nothing of this machine to say or to keep")
    keep = keep or detach
    cluster = find_cluster()
    if cluster is not None and not keep and not _has_options(cluster, options):
        cluster = None
    python = cluster.python if cluster else ""
    if snapshots and not file and words:
        words = (_path_from_working_folder(words[0]), *words[1:])
    source = _source(
        words,
        file,
        script,
        options,
        on_cluster=on_cluster,
        python=python,
        snapshots=snapshots,
        replaces=replaces,
    )
    if on_cluster:
        from trainyard.cli.run_session import run_on_cluster

        return run_on_cluster(source, *place, detach=detach)
    if keep:
        from trainyard.cli.commands.up import bring_up
        from trainyard.composition.cluster_option_mismatch import check_options

        check_options(bring_up(options), options)
    on_background = keep or cluster is not None
    return run_here(
        source, options, place[0], on_background=on_background, keep=keep, detach=detach
    )


def _has_options(cluster: RunningCluster, options: ClusterShape) -> bool:
    """Whether the cluster that is up can run this; if not, that is said."""
    if options.is_default:
        return True
    from trainyard.composition.cluster_option_mismatch import lacking_options

    if lacking := lacking_options(cluster, options):
        click.echo(
            f"note: the cluster that is up (process {cluster.pid}) is without "
            f"{', '.join(lacking)}: this runs on a cluster of its own",
            err=True,
        )
    return not lacking


def run_here(
    source: Source,
    options: ClusterShape,
    namespace: str | None,
    *,
    on_background: bool,
    keep: bool = False,
    detach: bool = False,
) -> int:
    """Run the source on the embedded cluster that is up, or on a private one; return the exit
    code."""
    if not on_background:
        from trainyard.composition.private_cluster import private_host

        with private_host(options) as host:
            from trainyard.cli.run_session import run_on_private_cluster

            return run_on_private_cluster(source, host, namespace)
    from trainyard.cli.run_session import run_on_background_cluster

    return run_on_background_cluster(source, namespace, keep=keep, detach=detach)


def _source(
    words: tuple[str, ...],
    file: str | None,
    script: ScriptShape,
    options: ClusterShape,
    *,
    on_cluster: bool,
    python: str,
    snapshots: bool,
    replaces: bool,
) -> Source:
    """Return what is to run; raises UsageError where that is not clear."""
    if words and is_manifest(words[0]) and file is None and not script.is_module:
        file, words = words[0], words[1:]
    if file is None:
        if not words:
            raise click.UsageError(
                "name a script, trainyard run train.py, or a manifest, trainyard run job.yaml"
            )
        draft = Draft(words, script, options, on_cluster=on_cluster, cluster_python=python)
        return ScriptSource(draft, python=python, snapshots=snapshots, replaces=replaces)
    if words:
        raise click.UsageError(f"{words[0]} is one too many: {file} says what runs")
    if script:
        raise click.UsageError(f"options of scripts have no place beside {file}: change it instead")
    refuse_script(file)
    if file != "-":
        _require_file(file)
    return FileSource(
        file,
        options,
        on_cluster=on_cluster,
        python=python,
        snapshots=snapshots,
        replaces=replaces,
    )


def _require_file(file: str) -> None:
    """Raise TrainyardError for a manifest that is not there, before a cluster is started for it."""
    try:
        os.stat(file)
    except OSError as error:
        raise TrainyardError(f"cannot read {file}: {(error.strerror or '').lower()}") from error


def _path_from_working_folder(script: str) -> str:
    """Return a script's path from the working folder, which is what `--snapshot` copies."""
    path = os.path.relpath(os.path.expanduser(script))
    if os.path.exists(path) and path.startswith("../"):
        raise click.UsageError(
            f"--snapshot copies {os.getcwd()}, in which {script} does not lie: go to a folder that "
            "holds all of the code"
        )
    return path if os.path.exists(path) else script
