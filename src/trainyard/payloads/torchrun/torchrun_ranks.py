"""How torchrun's agent treats its ranks: what each writes, and whom a signal reaches.

Each patch takes private names of torch, and does without what is missing, as `torchrun_program`
says. Shipped in one text with `torchrun_program`, `rank_output` and `crash_stack`. Standard
library, Python 3.8, and torch.
"""

from __future__ import annotations

import os

from trainyard.payloads.crash_stack import read_crash, write_crash
from trainyard.payloads.rank_output import RankOutput, shared_output
from trainyard.payloads.torchrun.torchrun_program import at_end, warn_once

TYPE_CHECKING = False  # that of typing takes 8 ms to import
if TYPE_CHECKING:
    from typing import Any

ASKS_RANKS_ALONE = "way to end a rank and not what it has started"
SHOWS_LAST_CRASH = "way to tell a crash of these ranks from one before them"
TAGS_LINES = "way to keep the lines of ranks apart"
LAUNCHED_OVER_SSH = "TRAINYARD_RUN"
"""A variable of such launches: one pod has the output of all replicas."""


def ask_ranks_alone() -> None:
    """A rank that is to end gets the signal alone; what it has left behind gets it afterwards.

    torch (`SubprocessHandler.close`, `torch/distributed/elastic/multiprocessing`) signals the
    rank's whole process group: a rank that saves at its end would die of a DataLoader whose workers
    have been killed.
    """
    import signal

    api = _processes_module()
    handler, context = api.SubprocessHandler, api.SubprocessContext
    close_group, close_context = handler.close, context._close

    def close(self: Any, death_sig: Any = None) -> None:
        try:
            process, files = self.proc, (self._stdout, self._stderr)
        except AttributeError as error:
            warn_once(ASKS_RANKS_ALONE, error)
            close_group(self, death_sig)
            return
        if death_sig == signal.SIGKILL:
            close_group(self, death_sig)
            return
        process.send_signal(death_sig or signal.SIGTERM)
        for file in files:
            if file:
                file.close()

    def close_all(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            processes = [each.proc for each in self.subprocess_handlers.values()]
        except AttributeError as error:
            warn_once(ASKS_RANKS_ALONE, error)
            processes = []
        asked = [process.pid for process in processes if process.poll() is None]
        close_context(self, *args, **kwargs)
        for pid in asked:
            try:
                os.killpg(pid, signal.SIGTERM)
            except ProcessLookupError:
                continue

    handler.close, context._close = close, close_all


def keep_lines_apart() -> None:
    """Where several ranks write into one log, each line is whole and begins with its rank.

    A terminal, and what a user has torchrun redirect (`--redirects`, `--tee`), stay as they are.
    """
    handler = _processes_module().SubprocessHandler
    start = handler._popen
    output: list[RankOutput] = []

    def start_tagged(self: Any, args: Any, env: Any) -> Any:
        count = env.get(
            "WORLD_SIZE" if LAUNCHED_OVER_SSH in os.environ else "LOCAL_WORLD_SIZE", "1"
        )
        try:
            is_kept = count == "1" or os.isatty(1) or self._stdout or self._stderr
        except AttributeError as error:
            warn_once(TAGS_LINES, error)
            is_kept = True
        if is_kept:
            return start(self, args, env)
        if not output:
            output.append(RankOutput())
            output[0].start()
            at_end.append(output[0].drain)
        rank = env["RANK"]
        self._stdout = os.fdopen(output[0].pipe(rank, 1), "wb")
        self._stderr = self._stdout
        if not shared_output():
            self._stderr = os.fdopen(output[0].pipe(rank, 2), "wb")
        try:
            return start(self, args, env)
        finally:
            self._stdout.close()
            self._stderr.close()
            self._stdout = self._stderr = None

    handler._popen = start_tagged


def keep_the_last_crash() -> None:
    """The stack of a crash is gone when ranks start again, and short when all have ended."""
    context = _processes_module().SubprocessContext
    start = context._start

    def start_afresh(self: Any) -> None:
        write_crash("")
        start(self)

    at_end.append(lambda: write_crash(read_crash()))
    context._start = start_afresh


def _processes_module() -> Any:
    from torch.distributed.elastic.multiprocessing import api

    return api


RANK_PATCHES = (
    (ask_ranks_alone, ASKS_RANKS_ALONE),
    (keep_lines_apart, TAGS_LINES),
    (keep_the_last_crash, SHOWS_LAST_CRASH),
)
"""Patches, and what is lost without each of them."""
