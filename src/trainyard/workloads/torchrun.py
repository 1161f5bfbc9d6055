"""The launch of a PyTorchTrainingJob's replica by torchrun.

torchrun turns every failure into exit code 1. The launch here runs the very same program in the
very same process, and ends with the exit code of the first rank that failed, 128 + n for signal n,
so that the restart policy ExitCode means something. It works in any image that has torch, without
anything of ours in it.
"""

from __future__ import annotations

from collections.abc import Sequence

PROGRAM = """\
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
if sys.path[:1] == [""]: del sys.path[0]
sys.argv[0] = "torchrun"
from torch.distributed.run import main
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
try:
    main()
except ChildFailedError as error:
    print(error, file=sys.stderr)
    code = error.get_first_failure()[1].exitcode
    sys.exit(128 - code if code < 0 else code or 1)
except SignalException as error:
    sys.exit(128 + error.sigval)
"""
"""As `torchrun`, with exit codes.

SIGTERM before torchrun handles it: as process 1 of a container it would be ignored otherwise. It
leaves by `os._exit`, because an orderly end would close the rendezvous to all others for good.
The working directory is taken off the path of the agent (not of the ranks), as for `torchrun`.
"""

SCRIPT = f"""\
IFS= read -r run <"$(command -v torchrun || echo /dev/null)"
case $run in
'#!'/*/python*) run=${{run#'#!'}} ;;
*) run=$(command -v python3 || command -v python) ;;
esac
[ -n "$run" ] || {{
    echo "torchrun: this image has neither torchrun nor python in its PATH" >&2
    exit 127
}}
exec $run -c '{PROGRAM}' "$@"
"""
"""Picks the interpreter that `torchrun` itself would use: the one of its first line."""

ELASTIC_MAX_RESTARTS = 100
"""torchrun counts a changed membership as a restart, and allows none by default."""
ELASTIC_LAST_CALL_SECONDS = 5
"""Each rendezvous below the maximum waits this long for more nodes; torch's default is 30."""


def command() -> list[str]:
    """The container's command; the container's args are torchrun's."""
    return ["/bin/sh", "-c", SCRIPT, "torchrun"]


def arguments(
    *,
    nodes: str,
    processes: str,
    backend: str,
    endpoint: str,
    run_id: str,
    role: str,
    max_restarts: int | None,
    elastic: bool,
    extra: Sequence[str],
    script: Sequence[str],
) -> list[str]:
    """Options and script, as one would give them to `torchrun`.

    `nodes` is a number, or `min:max`. Extra options come last, so that they win.
    """
    options = [
        *("--nnodes", nodes),
        *("--nproc_per_node", processes),
        *("--rdzv_backend", backend),
        *("--rdzv_endpoint", endpoint),
        *("--rdzv_id", run_id),
        *("--role", role),
    ]
    if max_restarts is None and elastic:
        max_restarts = ELASTIC_MAX_RESTARTS
    if max_restarts is not None:
        options += ["--max_restarts", str(max_restarts)]
    return [*options, *(_with_last_call(extra) if elastic else extra), *script]


def _with_last_call(extra: Sequence[str]) -> list[str]:
    """The extra options with a last-call timeout, unless they hold one."""
    ours = f"last_call_timeout={ELASTIC_LAST_CALL_SECONDS}"
    options = list(extra)
    for i, option in enumerate(options):
        name, equals, _ = option.replace("-", "_").partition("=")
        if name != "__rdzv_conf":
            continue
        at = i if equals else i + 1
        if at < len(options) and "last_call_timeout" not in options[at]:
            options[at] += f",{ours}"
        return options
    return ["--rdzv_conf", ours, *options]
