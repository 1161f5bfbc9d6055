"""The options of commands that take a script. Imports nothing heavy."""

from __future__ import annotations

import functools
import os
import re
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from trainyard.api.scripts.script_shape import ScriptShape
from trainyard.cli.options import IMAGE, MOUNTS
from trainyard.machine.secret_redaction import redact_value

if TYPE_CHECKING:
    from trainyard.api.scripts.script_drafts import Draft

_LAUNCHERS = ("torchrun", "plain", "deepspeed", "colossalai", "mpi", "none")
_VOLUME = """Mount a folder (on a cluster, a claim) at PATH in the replicas of SCRIPT; or say which
folder stands for a claim. Folders are made if missing. Repeatable."""
_IMAGE = """The Python environment that stands for images (first wins), or the image of SCRIPT's
replicas. Repeatable."""
_SCRIPT_HELP = {
    "volumes": ("DIR:PATH|CLAIM=DIR", _VOLUME),
    "images": ("PATTERN=ENV|IMAGE", _IMAGE),
}
_NAMES_ELSEWHERE = {
    "--nproc-per-node": "--procs-per-replica",
    "--nproc": "--procs-per-replica",
    "--nnodes": "--replicas",
    "--num-nodes": "--replicas",
    "--nodes": "--replicas",
    "--workers": "--replicas",
    "--num-workers": "--replicas",
    "--world-size": "--replicas",
    "--num-machines": "--replicas",
    "--num-processes": "--procs-per-replica",
    "--np": "--procs-per-replica",
    "--ntasks-per-node": "--procs-per-replica",
    "--num-gpus": "--gpus",
    "--max-restarts": "--restart",
}
"""What torchrun, deepspeed, accelerate, mpirun and srun call our options."""
_OPEN_SECRET = (
    "warning: --env {name}=… looks like a secret, and everybody who may see the job reads its "
    "value there; set {name} in this shell and write --env {name}: then it goes by a Secret"
)
_MANIFESTS = (".yaml", ".yml", ".json")


def is_manifest(word: str) -> bool:
    """Whether a word of the command line names a manifest, not a script."""
    return word == "-" or word.lower().endswith(_MANIFESTS)


class ScriptCommand(click.Command):
    """A command whose options end at a script, whose arguments follow, but not at a manifest."""

    takes_scripts = True

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        for param in self.params:
            if isinstance(param, click.Option) and param.name in _SCRIPT_HELP:
                param.metavar, param.help = _SCRIPT_HELP[param.name]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Let options stand behind a manifest, but not behind a script."""
        ctx.allow_interspersed_args = False
        probe = click.Context(
            self, parent=ctx.parent, ignore_unknown_options=True, resilient_parsing=True
        )
        probe.allow_interspersed_args = False
        given = self.make_parser(probe).parse_args(list(args))[0]
        rest = given.get("words")
        first = str(rest[0]) if isinstance(rest, tuple) and rest else ""
        if is_manifest(first):
            ctx.allow_interspersed_args = True
        name = first.partition("=")[0]
        if ours := _NAMES_ELSEWHERE.get(name.replace("_", "-")):
            raise click.UsageError(f"No such option {name!r}. Did you mean {ours}?", ctx)
        if str(number := given.get("namespace")).isdigit():
            raise click.UsageError(
                f"-n names a namespace, as in kubectl; did you mean --replicas {number}?", ctx
            )
        return super().parse_args(ctx, args)


def misplaced_note(draft: Draft) -> str:
    """Return a note on options of ours that stand after the script and so are passed to it.

    Empty if there are none, or if the script has options of these names.
    """
    context = click.get_current_context()
    options = [each for each in context.command.params if isinstance(each, click.Option)]
    ours = {
        name: not each.is_flag for each in options for name in each.opts if name.startswith("--")
    }
    words = draft.misplaced(ours)
    if not words:
        return ""
    names = ", ".join(dict.fromkeys(w.partition("=")[0] for w in words if w.startswith("--")))
    module = ["-m"] if draft.script.is_module else []
    meant = shlex.join([str(context.info_name), *words, *module, draft.found.target])
    return (
        f"note: {names} stands behind {draft.found.target} and is passed to it; what is meant for "
        f"trainyard stands before the script: trainyard {meant}"
    )


def script_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add SCRIPT, ARGS and the options of scripts; the command takes `words` and `script`."""

    @click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT [ARGS]...]")
    @_shape_options
    @_life_options
    @functools.wraps(function)
    def command(**given: Any) -> Any:
        meta = click.get_current_context().meta
        names = set(ScriptShape.__dataclass_fields__) - {"mounts", "image"}
        chosen = {name: given.pop(name) for name in names}
        script = ScriptShape(
            **chosen, mounts=tuple(meta.get(MOUNTS, ())), image=meta.get(IMAGE, "")
        )
        return function(script=script, **given)

    return command


def _shape_options(function: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.option("-m", "--module", "is_module", is_flag=True, help="SCRIPT is a module."),
        click.option("--replicas", type=click.IntRange(min=1), metavar="N", help="By default 1."),
        click.option(
            "--procs-per-replica",
            "processes",
            type=click.IntRange(min=1),
            metavar="N",
            help="By default one a GPU of the replica, without GPUs 1.",
        ),
        click.option(
            "--gpus",
            type=click.IntRange(min=0),
            metavar="N",
            help="GPUs of each replica; by default this machine's, shared out evenly.",
        ),
        click.option(
            "--launcher",
            type=click.Choice(_LAUNCHERS),
            help="How to start it: by default as its imports suggest. plain tells each replica its "
            "rank by the environment, none tells it nothing.",
        ),
        click.option(
            "--elastic",
            metavar="MIN:MAX",
            callback=_elastic,
            help="Go on with fewer replicas, and take in more (torchrun, deepspeed).",
        ),
    )
    return _apply(options, function)


def _life_options(function: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.option("--name", default="", help="Of the job; by default the script's."),
        click.option(
            "--env",
            multiple=True,
            metavar="NAME[=VALUE]",
            callback=_env,
            help="A variable of the replicas; without a value, this shell's, by a Secret of the "
            "job. Repeatable.",
        ),
        click.option(
            "--restart",
            "restarts",
            type=click.IntRange(min=0),
            default=0,
            metavar="N",
            help="Start again after a failure, N times at most.",
        ),
        click.option("--queue", default="", metavar="NAME", help="Wait for a turn in this queue."),
        click.option(
            "--timeout", metavar="TIME", callback=_timeout, help="End it after 90s, 30m, 1d12h."
        ),
        click.option(
            "--save", metavar="FILE", help="Write the manifest too, for `trainyard run -f FILE`."
        ),
        click.option(
            "--no-check",
            "is_checked",
            flag_value=False,
            default=True,
            help="Do not look whether what SCRIPT imports is installed.",
        ),
    )
    return _apply(options, function)


def _apply(
    options: tuple[Callable[..., Any], ...], function: Callable[..., Any]
) -> Callable[..., Any]:
    for option in reversed(options):
        function = option(function)
    return function


def _elastic(_: click.Context, __: click.Parameter, text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,5}):(\d{1,5})", text)
    least, most = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= least <= most:
        raise click.BadParameter(f"{text!r} is not of the form MIN:MAX, such as 2:8")
    return least, most


def _env(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for text in values:
        name, separator, value = text.partition("=")
        if not re.fullmatch(r"[A-Za-z_][\w.-]*", name, re.ASCII):
            raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE")
        if not separator and name not in os.environ:
            raise click.BadParameter(f"{name} is not set here; give it a value: {name}=VALUE")
        found[name] = value if separator else None
        if separator and redact_value(name, value) != value:
            click.echo(_OPEN_SECRET.format(name=name), err=True)
    return found


def _timeout(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    from trainyard.schema import duration
    from trainyard.schema.errors import TrainyardError

    try:
        seconds = int(text) if text.isascii() and text.isdigit() else None
        seconds = int(duration.parse(text).total_seconds()) if seconds is None else seconds
    except TrainyardError as error:
        raise click.BadParameter(str(error)) from error
    if seconds < 1:
        raise click.BadParameter(f"{text} is less than a second")
    return seconds
