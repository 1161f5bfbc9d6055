"""`trainyard operator`: the controller against a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainyard.cli.garbage import collect_garbage_again
from trainyard.operator.config.setting_types import PREFIX, BooleanSetting, ListSetting, Setting
from trainyard.operator.config.settings_table import SETTINGS
from trainyard.schema.errors import TrainyardError

_FIRST_LISTS_SECONDS = 60.0

if TYPE_CHECKING:
    from trainyard.operator.config.operator_settings import ServiceSettings
    from trainyard.operator.config.settings_loader import EffectiveSettings
    from trainyard.operator.operator_process import OperatorProcess


def _setting_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """A flag for every setting; the command takes what was given, as texts by name."""
    for setting in reversed(list(SETTINGS.values())):
        function = _option(setting)(function)
    return function


def _option(setting: Setting) -> Callable[..., Any]:
    # Judged with what variables and the file say, not here.
    default = f"  [default: {setting.default_description}]" if setting.default_description else ""
    text = setting.help + default
    if isinstance(setting.values, BooleanSetting):
        no = setting.flag.replace("--", "--no-", 1)
        return click.option(f"{setting.flag}/{no}", setting.name, default=None, help=text)
    return click.option(
        *(("-n",) if setting.flag == "--namespace" else ()),
        setting.flag,
        setting.name,
        multiple=isinstance(setting.values, ListSetting),
        metavar=setting.values.metavar,
        help=text,
    )


@click.command()
@click.option("--kubeconfig", metavar="FILE", help="By default what kubectl would use.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
@click.option(
    "--config",
    metavar="FILE",
    envvar=f"{PREFIX}CONFIG",
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
    effective = _effective(config, {name: _text(value) for name, value in given.items()})
    if print_config:
        click.echo(effective.text(), nl=False)
        return
    _check_extra()
    import uvloop

    from trainyard.operator.operator_logging import configure_logging

    settings = effective.settings
    configure_logging(sys.stderr, settings.log_level, settings.log_format)
    uvloop.run(_run(kubeconfig, context, settings))


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return "" if value is None else str(value)


def _effective(config: Path | None, flags: dict[str, str]) -> EffectiveSettings:
    from trainyard.kube.credentials import own_namespace
    from trainyard.operator.config.settings_loader import (
        EffectiveSettings,
        InvalidSettings,
        PodEnvironment,
    )

    around = PodEnvironment(own_namespace(), _resolver_configuration())
    try:
        return EffectiveSettings(flags, os.environ, config, around)
    except InvalidSettings as error:
        raise click.UsageError(str(error)) from error


def _check_extra() -> None:
    for name in ("uvloop", "prometheus_client"):
        if find_spec(name) is None:
            raise TrainyardError(
                f"the operator needs {name}, which is not installed here: pip install "
                "'trainyard[operator]' (on Windows, in WSL 2)"
            )


def _resolver_configuration() -> str:
    try:
        return Path("/etc/resolv.conf").read_text(errors="replace")
    except OSError:
        return ""


async def _run(kubeconfig: str | None, context: str | None, settings: ServiceSettings) -> None:
    import asyncio
    import signal

    from trainyard.kube.client import Client
    from trainyard.operator.operator_process import OperatorProcess

    async with (
        await Client.paced(kubeconfig, context, settings.api) as client,
        await Client.from_kubeconfig(kubeconfig, context) as lease_client,
    ):
        service = OperatorProcess(client, settings, lease_client=lease_client)
        serving = asyncio.ensure_future(service.run())
        collecting = asyncio.ensure_future(_collect_garbage_later(service))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            # Ending in order hands the Lease over at once.
            loop.add_signal_handler(number, serving.cancel)
        await asyncio.wait([serving])
        collecting.cancel()
        if not serving.cancelled():
            serving.result()


async def _collect_garbage_later(service: OperatorProcess) -> None:
    """First lists leave no garbage, and what they leave is there to stay: to look through it all
    again and again took a quarter of a cold start (decision 186)."""
    import asyncio
    import contextlib
    import gc

    gc.disable()
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_LISTS_SECONDS):
                await service.until_synced()
    finally:
        gc.collect()
        collect_garbage_again()
