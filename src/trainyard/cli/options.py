"""Options that several commands share, and what their values mean. Imports nothing heavy."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import click

from trainyard.composition.cluster_shape import ClusterShape, Network
from trainyard.schema.errors import TrainyardError

_MANIFEST = "A manifest; - reads standard input. Repeatable."
_ISOLATIONS = ("auto", "namespaces", "plain")
_LEAST_LOG_BYTES = 256 << 10
_SCRIPTS = (".py", ".pyz")
_RESOURCE = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_./]*\Z")


MOUNTS = "trainyard.mounts"
"""Key in a context's `meta` for the mounts of `--volume DIR:PATH`, where scripts are taken."""
IMAGE = "trainyard.image"
"""Key in a context's `meta` for the image of `--image NAME`."""


def refuse_script(file: str) -> None:
    """Raise UsageError for a script in the place of a manifest."""
    if file.endswith(_SCRIPTS):
        raise click.UsageError(
            f"{file} is a script: trainyard run {file} runs it, trainyard init {file} makes a "
            "manifest of it"
        )


def files_option(text: str) -> Callable[..., Any]:
    """`-f FILE`, which may be repeated; the command takes `files`."""
    names = ("-f", "--file", "--filename", "files")
    return click.option(*names, multiple=True, metavar="FILE", help=text)


def manifests(function: Callable[..., Any]) -> Callable[..., Any]:
    """Manifests, by `-f FILE` or alone; the command takes `files`, one at least."""

    @click.argument("more", nargs=-1, metavar="[FILES]...")
    @functools.wraps(function)
    def command(files: tuple[str, ...], more: tuple[str, ...], **given: Any) -> Any:
        files = (*files, *more)
        if not files:
            name = click.get_current_context().info_name
            raise click.UsageError(f"name a manifest: trainyard {name} -f FILE")
        for each in files:
            refuse_script(each)
        return function(files=files, **given)

    decorated: Callable[..., Any] = files_option(_MANIFEST)(command)
    return decorated


def snapshot_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--snapshot`; the command takes `snapshots`."""
    return click.option(
        "--snapshot",
        "snapshots",
        is_flag=True,
        help="Run a copy of the working folder's code, so that edits reach no queued or restarted "
        "job: of a git repository what it does not ignore.",
    )(function)


def cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that shape an embedded cluster; the command takes them as `options`."""

    @folder_options
    @click.option(
        "--resource",
        "resources",
        multiple=True,
        metavar="NAME=N",
        callback=_resources,
        help="Pretend a resource, such as nvidia.com/gpu=8. Repeatable.",
    )
    @click.option(
        "--strict-scheduling",
        "is_strict",
        is_flag=True,
        help="Take requests, queues, node names and selectors to the letter.",
    )
    @click.option(
        "--isolation",
        type=click.Choice(_ISOLATIONS),
        default="auto",
        show_default=True,
        help="Separate pods by namespaces, or run them as plain processes.",
    )
    @_environment_option
    @_network_options
    @_limit_options
    @functools.wraps(function)
    def command(**given: Any) -> Any:
        chosen = {name: given.pop(name) for name in ClusterShape.__dataclass_fields__}
        if chosen["allowed_ports"] and chosen["network"] == "none":
            raise click.UsageError("--allow-port needs --network open")
        return function(options=ClusterShape(**chosen), **given)

    return command


def where_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add -n, --kubeconfig and --context; the command takes the three as `place`."""

    @click.option("-n", "--namespace", metavar="NAME", help="Namespace of the job.")
    @click.option(
        "--kubeconfig",
        metavar="FILE",
        help="Use a cluster of this kubeconfig instead of the embedded one.",
    )
    @click.option("--context", metavar="NAME", help="Use this context of the kubeconfig.")
    @functools.wraps(function)
    def command(
        namespace: str | None, kubeconfig: str | None, context: str | None, **rest: Any
    ) -> Any:
        return function(place=(namespace, kubeconfig, context), **rest)

    return command


def folder_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --volume and --image; the command takes them as `volumes` and `images`."""
    volume = click.option(
        "--volume",
        "volumes",
        multiple=True,
        metavar="CLAIM=DIR",
        callback=_volumes,
        help="The folder that stands for a claim; it is made if missing. Repeatable.",
    )
    image = click.option(
        "--image",
        "images",
        multiple=True,
        metavar="PATTERN=ENV",
        callback=_images,
        help="The virtual environment that stands for images. Repeatable, first wins.",
    )
    return volume(image(function))


def _environment_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--pass-env",
        "passed",
        multiple=True,
        metavar="NAME[,PATTERN...]",
        callback=_passed,
        help="Variables that containers get beside the usual ones: HF_TOKEN,'WANDB_*'. Repeatable.",
    )(function)


def _network_options(function: Callable[..., Any]) -> Callable[..., Any]:
    network = click.option(
        "--network",
        type=click.Choice(get_args(Network)),
        default="open",
        show_default=True,
        help="Let pods reach what this machine reaches, but nothing of the machine; or only each "
        "other.",
    )
    ports = click.option(
        "--allow-port",
        "allowed_ports",
        multiple=True,
        type=click.IntRange(1, 65535),
        metavar="PORT",
        help="A port of this machine's 127.0.0.1 that pods reach as host.trainyard.internal. "
        "Repeatable.",
    )
    return network(ports(function))


def _limit_options(function: Callable[..., Any]) -> Callable[..., Any]:
    processes = click.option(
        "--pids-limit",
        type=click.IntRange(min=0),
        metavar="N",
        help="Processes and threads that a container may have (0: any number); by default half of "
        "what the kernel has room for, at most 32768.",
    )
    size = click.option(
        "--log-max-size",
        metavar="SIZE",
        callback=_log_size,
        help="Where a container's log goes on in another file: 10Mi; in a cluster of `run`, 100Mi.",
    )
    files = click.option(
        "--log-max-files",
        type=click.IntRange(min=2),
        default=5,
        show_default=True,
        metavar="N",
        help="How many files of a container's log are kept.",
    )
    return processes(size(files(function)))


def _pair(text: str, what: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not (separator and key and value):
        raise click.BadParameter(f"{text!r} is not of the form {what}")
    return key, value


def _takes_scripts(ctx: click.Context) -> bool:
    return bool(getattr(ctx.command, "takes_scripts", False))


def _volumes(ctx: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    volumes = {}
    for text in values:
        if "=" not in text and _takes_scripts(ctx):
            source, _, place = text.rpartition(":")
            if not source or not place.startswith("/"):
                raise click.BadParameter(f"{text!r} is neither CLAIM=DIR nor DIR:/MOUNTPATH")
            ctx.meta.setdefault(MOUNTS, []).append((source, place))
            continue
        claim, folder = _pair(text, "CLAIM=DIR")
        path = Path(folder).expanduser().absolute()
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise click.BadParameter(f"cannot use {path}: {error.strerror}") from error
        volumes[claim] = str(path.resolve())
    return volumes


def _passed(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(name for text in values for name in text.split(",") if name)
    for name in names:
        if "=" in name:
            raise click.BadParameter(f"{name!r} is not a name; values go into the manifest's env")
        if name.isidentifier() and name not in os.environ:
            raise click.BadParameter(f"{name} is not set here")
    return names


def _resources(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    resources = {}
    for text in values:
        name, amount = _pair(text, "NAME=N")
        if not _RESOURCE.match(name) or not re.fullmatch(r"\d+(\.\d+)?[a-zA-Z]{0,2}", amount):
            raise click.BadParameter(f"{text!r} is not a resource and an amount")
        resources[name] = amount
    return resources


def _log_size(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    from trainyard.schema import quantity

    try:
        size = quantity.parse_int(text)
    except TrainyardError as error:
        raise click.BadParameter(str(error)) from error
    if size < _LEAST_LOG_BYTES:
        raise click.BadParameter(f"{text} is too little: {_LEAST_LOG_BYTES >> 10}Ki or more")
    return size


def _images(
    ctx: click.Context, __: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    images = []
    for text in values:
        if "=" not in text and _takes_scripts(ctx):
            if os.path.isdir(os.path.expanduser(text)) and text[:1] in "./~":
                raise click.BadParameter(f"{text} is an environment: write '*={text}'")
            ctx.meta[IMAGE] = text
            continue
        pattern, folder = _pair(text, "PATTERN=ENV")
        path = Path(folder).expanduser().absolute()
        if not os.access(path / "bin" / "python", os.X_OK):
            raise click.BadParameter(f"{path} is no Python environment: it has no bin/python")
        images.append((pattern, str(path)))
    return tuple(images)
