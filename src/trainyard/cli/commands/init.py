"""`trainyard init`: the manifest of a script, without running it."""

from __future__ import annotations

import shlex

import click

from trainyard.api.interpreter_check import InterpreterError
from trainyard.api.scripts.script_drafts import Draft
from trainyard.api.scripts.script_files import propose
from trainyard.api.scripts.script_shape import ScriptShape
from trainyard.cli.options import cluster_options
from trainyard.cli.script_manifest import heading, run_command, save
from trainyard.cli.script_options import ScriptCommand, misplaced_note, script_options
from trainyard.composition.cluster_shape import ClusterShape


@click.command(cls=ScriptCommand, options_metavar="[OPTIONS]")
@click.option(
    "--for-cluster",
    "on_cluster",
    is_flag=True,
    help="For a Kubernetes cluster: needs --image, and brings the script in a ConfigMap.",
)
@script_options
@cluster_options
def command(
    words: tuple[str, ...], on_cluster: bool, script: ScriptShape, options: ClusterShape
) -> None:
    """Print the manifest by which `run` would run SCRIPT, or the one script of this folder.

    With --save FILE it is written there. Nothing is started.
    """
    words = words or (propose(),)
    draft = Draft(words, script, options, on_cluster=on_cluster)
    try:
        draft.require()
    except InterpreterError as missing:
        click.echo(f"warning: {missing}", err=True)
    for line in filter(None, (misplaced_note(draft), draft.launch_note())):
        click.echo(line, err=True)
    if not script.save:
        click.echo(draft.text(heading=heading(draft, "")), nl=False)
        return
    save(draft, script.save)
    again = shlex.join(run_command(draft, script.save))
    click.echo(f"{script.save} written; run it: {again}", err=True)
