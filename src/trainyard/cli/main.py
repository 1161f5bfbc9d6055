"""The root of the command line: the table of commands, and the one place that reports errors.

A command is imported only when it is called. Nothing heavy may be imported here: `trainyard run` of
a short job takes a fraction of a second, most of it imports.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

import click

from trainyard import __version__
from trainyard.schema.errors import InvalidManifest, TrainyardError

_COMMANDS = {
    "run": ("run", "Run a script, or a manifest's jobs, to the end."),
    "init": ("init", "Print a manifest for a script."),
    "validate": ("validate", "Report every problem of manifests."),
    "render": ("render", "Print the objects that the controller would create."),
    "convert": ("convert", "Rewrite legacy spellings, and jobs of other systems."),
    "up": ("up", "Start the embedded cluster in the background."),
    "down": ("down", "End the embedded cluster and everything in it."),
    "restart": ("restart", "Start the embedded cluster anew under replicas that run on."),
    "doctor": ("doctor", "Say what is wrong here, and what to do."),
    "status": ("status", "Tell whether the embedded cluster is up, and what it does."),
    "kubeconfig": ("kubeconfig", "Print the path of the embedded cluster's kubeconfig."),
    "submit": ("submit", "Create a manifest's jobs."),
    "list": ("list_", "List jobs."),
    "show": ("show", "Show one job."),
    "logs": ("logs", "Print the logs of a job's replicas."),
    "top": ("top", "Show what replicas use of CPU, memory and GPUs."),
    "events": ("events", "List what happened to a job."),
    "wait": ("wait", "Wait until jobs reach a phase."),
    "delete": ("delete", "Delete jobs."),
    "history": ("history", "List the jobs that were recorded here."),
    "rerun": ("rerun", "Do what a job did once more."),
    "diff": ("diff", "Say what differs between two jobs."),
    "pause": ("pause", "Pause a job."),
    "resume": ("resume", "Resume a paused job."),
    "scale": ("scale", "Change the size of an elastic job."),
    "debug": ("debug", "Create a job in debug mode and open a shell in a replica."),
    "exec": ("exec_", "Run a command in a replica."),
    "chaos": ("chaos", "Run a job under faults, and tell what they cost."),
    "stacks": ("stacks", "Show where every rank of a job stands."),
    "explain": ("explain", "Say why a job is pending, restarting or failed, and what to do."),
    "queue": ("queue", "The machine as a job queue."),
    "crds": ("crds", "Print the CustomResourceDefinitions."),
    "manifests": ("manifests", "Print all that a cluster needs, the operator included."),
    "operator": ("operator", "Run the controller against a cluster."),
    "completion": ("completion", "Print the completion script of a shell."),
}
"""Command to the module of `commands` that defines it as `command`, and its summary."""

_OUTPUT_LOST = "cannot write the output: {}"
_REPORTED = (TrainyardError, ModuleNotFoundError, OSError, UnicodeEncodeError, BaseExceptionGroup)
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

_LINUX_ONLY = ("up", "down", "restart", "doctor", "status", "kubeconfig")
"""Commands about the embedded cluster alone; some of their modules are Linux's."""

_NAMES_ELSEWHERE = {
    "apply": "submit",
    "create": "submit",
    "start": "up",
    "stop": "pause",
    "get": "list",
    "ls": "list",
    "ps": "list",
    "describe": "show",
    "log": "logs",
    "rm": "delete",
    "remove": "delete",
    "kill": "delete",
    "cancel": "delete",
    "attach": "exec",
    "shell": "exec",
    "why": "explain",
    "usage": "top",
    "stats": "top",
    "htop": "top",
    "check": "doctor",
    "diagnose": "doctor",
    "suspend": "pause",
    "template": "render",
}
"""What other tools call these commands."""
_NEVER_MEANT = {"down", "delete"}
"""What destroys is not suggested for a slip of the keyboard."""


class _PipeBroke(Exception):
    """The output, or another pipe, has no reader any more."""


class Commands(click.Group):
    """Lists all commands without importing any."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the table's order."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, importing its module; None if there is no such command."""
        if cmd_name not in _COMMANDS:
            return None
        if cmd_name in _LINUX_ONLY and sys.platform != "linux":
            from trainyard.machine.state_folder import require_linux

            require_linux()
        module = import_module(f"trainyard.cli.commands.{_COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command to call; an unknown one is answered with what was probably meant."""
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-"):
            from difflib import get_close_matches

            meant = _NAMES_ELSEWHERE.get(name) or next(
                iter(get_close_matches(name, [c for c in _COMMANDS if c not in _NEVER_MEANT], 1)),
                "",
            )
            if not meant and os.path.isfile(name):
                meant = f"trainyard run {name}"
            hint = f" Did you mean {meant}?" if meant else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command; click itself would end silently with code 1 at a broken pipe."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _PipeBroke from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table itself."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trainyard")
def cli() -> None:
    """Run distributed training jobs from Kubernetes manifests, here or on a cluster."""


def main() -> None:
    """The entry point: a user's mistake is one message and exit code 1, never a traceback."""
    _prepare()
    try:
        code = _run_command()
    except _PipeBroke:
        _exit_without_flushing(141)
    except _REPORTED as error:
        if _is_broken_pipe(error):
            _exit_without_flushing(141)
        from trainyard.composition.expected_errors import expected_error

        expected = expected_error(error) or _output_error(error)
        if expected is None:
            raise
        # Problems of a manifest say themselves that they are errors.
        prefix = "" if isinstance(expected, InvalidManifest) else "error: "
        click.echo(f"{prefix}{expected}", err=True)
        code, is_reported = 1, True
    else:
        is_reported = False
    if _fails_to_flush(is_reported):
        _exit_without_flushing(code or 1)
    _exit_now(code)


def _output_error(error: BaseException) -> TrainyardError | None:
    """The error for what could not be printed; files have names."""
    if not isinstance(error, OSError) or error.errno not in _DISK_FULL:
        return None
    return TrainyardError(_OUTPUT_LOST.format(error.strerror))


def _is_broken_pipe(error: BaseException) -> bool:
    """Whether the only thing that went wrong is that nobody reads the output any more."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_broken_pipe, error.exceptions))
    return isinstance(error, BrokenPipeError)


def _prepare() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal may lack a replica's characters
            stream.reconfigure(errors="replace")
    _disable_pydantic_plugins()


def _run_command() -> int:
    """Run the command; return its exit code."""
    try:
        code = cli.main(prog_name="trainyard", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return code if isinstance(code, int) else 0


def _disable_pydantic_plugins() -> None:
    """Keep pydantic from looking through all installed packages for plugins, which takes longer
    than building our models. Programs that import trainyard keep theirs (decision 164)."""
    loader: Any = ModuleType("pydantic.plugin._loader")
    loader.get_plugins = tuple
    sys.modules.setdefault(loader.__name__, loader)


def _fails_to_flush(is_reported: bool) -> bool:
    """Whether the output cannot be written, to a full disk say; reported once."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _exit_without_flushing(141)
    except OSError as error:
        if not is_reported:
            click.echo(f"error: {_OUTPUT_LOST.format(error.strerror)}", err=True)
        return True
    return False


def _exit_now(code: int) -> NoReturn:
    """Exit at once: freeing everything that was imported takes longer than many commands."""
    with suppress(OSError, AttributeError):  # no standard error, or nobody reads it any more
        sys.stderr.flush()
    os._exit(code)


def _exit_without_flushing(code: int) -> NoReturn:
    """Exit although nobody reads the output: nothing may be flushed into it on the way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


if __name__ == "__main__":
    main()
