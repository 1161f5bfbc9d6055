"""`trainyard operator`: the controller against a cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from trainyard.composition.operator_flags import CONFIG_VARIABLE, Flag, flags


def _setting_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for every setting; the command takes what was given, by the setting's name."""
    for flag in reversed(flags()):
        function = _option(flag)(function)
    return function


def _option(flag: Flag) -> Callable[..., Any]:
    # No default of click's: variables and the file may say something else.
    text = flag.help + (f"  [default: {flag.default}]" if flag.default else "")
    if flag.is_switch:
        negated = flag.flag.replace("--", "--no-", 1)
        return click.option(f"{flag.flag}/{negated}", flag.setting, default=None, help=text)
    return click.option(
        *(("-n",) if flag.flag == "--namespace" else ()),
        flag.flag,
        flag.setting,
        multiple=flag.is_repeatable,
        metavar=flag.metavar,
        help=text,
    )


@click.command()
@click.option("--kubeconfig", metavar="FILE", help="By default what kubectl would use.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
@click.option(
    "--config",
    metavar="FILE",
    envvar=CONFIG_VARIABLE,
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML with settings, such as sshPort: 2222.",
)
@click.option(
    "--print-config", is_flag=True, help="Print the settings in force and where each came from."
)
@_setting_options
def command(
    kubeconfig: str | None,
    context: str | None,
    config: Path | None,
    print_config: bool,
    **given: Any,
) -> None:
    """Look after the jobs of a cluster until interrupted.

    The cluster needs the definitions (trainyard crds). What flags do not say is taken from
    variables of the environment (--ssh-port is TRAINYARD_OPERATOR_SSH_PORT), then from the file,
    then from the defaults. A record holds the specs of jobs, what their environment says among it,
    but nothing of Secrets and ConfigMaps.
    """
    from trainyard.composition.operator_command import (
        InvalidSettings,
        load_settings,
        run_operator,
    )

    try:
        loaded = load_settings(config, {name: _text(value) for name, value in given.items()})
    except InvalidSettings as error:
        raise click.UsageError(str(error)) from error
    if print_config:
        click.echo(loaded.text(), nl=False)
        return
    run_operator(kubeconfig, context, loaded.settings)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return "" if value is None else str(value)
