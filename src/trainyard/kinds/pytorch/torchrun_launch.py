"""The launch of a PyTorchTrainingJob's replica by torchrun.

It works in any image that has torch, without anything of ours in it (decision 19).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from trainyard.payloads.shipping import torchrun_program
from trainyard.schema.dataclass import dataclass

HAS_TORCH = """\
import sys
if sys.path[:1] == [""]: del sys.path[0]
from importlib.util import find_spec
sys.exit(find_spec("torch") is None)
"""
SCRIPT = """\
program=@program@
set -f
python= first= torchrun=
IFS=:
for folder in $PATH; do
    for name in python3 python; do
        [ -n "$python" ] || [ ! -x "$folder/$name" ] || { python=$folder/$name; first=$folder; }
    done
    if [ -x "$folder/torchrun" ]; then torchrun=$folder; break; fi
done
unset IFS
if [ -n "$torchrun" ] && [ "$first" != "$torchrun" ] && [ -n "$python" ]; then
    "$python" -c '@has torch@' 2>/dev/null && torchrun=
fi
if [ -n "$torchrun" ]; then
    IFS= read -r run <"$torchrun/torchrun"
    case $run in
    '#!'/*/python*) exec ${run#'#!'} -c "$program" "$@" ;;
    esac
    for name in python3 python; do
        [ ! -x "$torchrun/$name" ] || python=$torchrun/$name
    done
fi
[ -n "$python" ] || {
    echo "torchrun: this image has neither torchrun nor python in its PATH" >&2
    exit 127
}
exec "$python" -c "$program" "$@"
"""
"""Picks the interpreter that `torchrun` itself would use, the one of its first line, unless one
that has torch comes before it in the PATH (decision 121)."""

ELASTIC_MAX_RESTARTS = 100
"""torchrun counts a changed membership as a restart, and allows none by default (decision 30)."""
# https://pytorch.org/docs/stable/elastic/rendezvous.html
ELASTIC_RENDEZVOUS = {"last_call_timeout": 5, "keep_alive_interval": 2}
"""Seconds. Each rendezvous below the maximum waits for a last call, 30 s by torch's default. A
node that left is missed after three intervals, 5 s each by default; until then nobody goes on.
Decision 30."""
REJOIN_ENV = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""With a shared store, earlier agents do not send its address to new ones, whose
rendezvous then hangs for a minute and fails (`DynamicRendezvousHandler` of torch 2.13).
Decision 30."""
SHUTDOWN_TIMEOUT = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"


def shutdown_timeout_env(grace_seconds: int | None) -> dict[str, str]:
    """The variable that has agents wait for ending ranks as long as the pod's grace period; torch's
    default is 30 s (decision 99). Empty for a pod without one."""
    return {} if grace_seconds is None else {SHUTDOWN_TIMEOUT: str(max(grace_seconds, 1))}


def command(*, elastic: bool) -> list[str]:
    """The container's command; the container's args are torchrun's."""
    program = shlex.quote(torchrun_program(elastic=elastic))
    script = SCRIPT.replace("@has torch@", HAS_TORCH).replace("@program@", program)
    return ["/bin/sh", "-c", script, "torchrun"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One replica's call of `torchrun`. `nodes` is a number, or `min:max`."""

    nodes: str
    processes: str
    backend: str
    endpoint: str
    run_id: str
    role: str
    max_restarts: int | None
    elastic: bool
    extra: Sequence[str]
    script: Sequence[str]

    def arguments(self) -> list[str]:
        """Options and script; extra options come last, so that they win."""
        options = [
            *("--nnodes", self.nodes),
            *("--nproc_per_node", self.processes),
            *("--rdzv_backend", self.backend),
            *("--rdzv_endpoint", self.endpoint),
            *("--rdzv_id", self.run_id),
            *("--role", self.role),
        ]
        max_restarts = self.max_restarts
        if max_restarts is None and self.elastic:
            max_restarts = ELASTIC_MAX_RESTARTS
        if max_restarts is not None:
            options += ["--max_restarts", str(max_restarts)]
        extra = _with_rendezvous(self.extra) if self.elastic else self.extra
        return [*options, *extra, *self.script]


def _with_rendezvous(extra: Sequence[str]) -> list[str]:
    """The extra options with our rendezvous settings, except those that they set themselves."""
    options = list(extra)
    for i, option in enumerate(options):
        name, equals, _ = option.replace("-", "_").partition("=")
        at = i if equals else i + 1
        if name == "__rdzv_conf" and at < len(options):
            options[at] = ",".join([options[at], *_rendezvous_settings(options[at])])
            return options
    return ["--rdzv_conf", ",".join(_rendezvous_settings("")), *options]


def _rendezvous_settings(given: str) -> list[str]:
    return [f"{key}={value}" for key, value in ELASTIC_RENDEZVOUS.items() if key not in given]
