"""What runs in the place of torchrun: torchrun itself, in the same process, with exit codes.

torchrun turns every failure into exit code 1. This ends with the exit code of the first rank that
failed, or 128 + n for signal n, so that the restart policy ExitCode means something (decision 19).
What it changes in torch are private names, which may be gone in another version. Then torch's own
behaviour stays, and one line on stderr says what is lost; the launch itself must never fail by it.

It works in any image that has torch, without anything of ours in it: `shipping.torchrun_program`
makes one text of this file, of `torchrun_elastic` where members may change, and of a call of
`main`. Nothing but `os` and `sys` may be imported before `leave_own_folder_out`: a file of the
user's in the working directory may have any name. Standard library, Python 3.8, and torch.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # that of typing takes 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Patch = tuple[Callable[[], None], str]
    """A patch, and what is lost where this torch does not allow it."""

OBSERVE, OBSERVER_PATH = "TRAINYARD_OBSERVE", "/t9k/observer"
"""The observer's variable, and its folder for PYTHONPATH."""
WAITS_AT_END = "way to end a replica that waits for the others at its end"

_warned: set[str] = set()
at_end: list[Callable[[], None]] = []
"""What is to be done when the ranks have ended, before this process ends."""


def warn_once(behaviour: str, error: Exception) -> None:
    """Say on stderr, once a process, which behaviour of ours this torch does not allow."""
    if behaviour not in _warned:
        _warned.add(behaviour)
        print(f"trainyard: this torch has no {behaviour} ({error})", file=sys.stderr, flush=True)


def leave_own_folder_out() -> None:
    """Take the working directory, or the folder of this file, off the path, as for `torchrun`.

    That is the path of the agent; its ranks have one of their own.
    """
    if sys.path[:1] == [os.path.dirname(sys.argv[0])]:
        del sys.path[0]


def end_on_sigterm() -> None:
    """Let SIGTERM end this process while torch is imported.

    As process 1 of a container it would be ignored otherwise, until torchrun handles it.
    """
    import signal

    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))


def let_ranks_be_observed() -> None:
    """Put the observer first in the ranks' PYTHONPATH where the pod says so (decision 223)."""
    path = os.environ.get("PYTHONPATH", "")
    if not os.environ.get(OBSERVE):
        return
    os.environ[OBSERVE] = "kept=1," + os.environ[OBSERVE]
    if OBSERVER_PATH not in path.split(":"):
        os.environ["PYTHONPATH"] = f"{OBSERVER_PATH}:{path}" if path else OBSERVER_PATH


def import_torchrun() -> Callable[[], None]:
    """torchrun's main function, imported with half of the work.

    While torch is imported nothing is garbage, and what is there then stays: looking for garbage,
    in the course of it and later, takes a third of an agent's time (decisions 163 and 210). A fifth
    of the import is `torch._meta_registrations`, which torch (`torch/__init__.py`) loads last: how
    operators compute shapes without data. No agent asks for it, so it is loaded as soon as anything
    else of torch is (decision 210).
    """
    import gc

    gc.disable()
    late: Any = LateModule("torch._meta_registrations")
    sys.modules[late.__name__] = late
    sys.argv[0] = "torchrun"
    from torch.distributed.run import main as torchrun

    sys.meta_path.insert(0, late)
    gc.freeze()
    gc.enable()
    found: Callable[[], None] = torchrun
    return found


class LateModule(type(sys)):  # type: ignore[misc]  # types.ModuleType, which need not be imported
    """A module until somebody asks for it, and what finds the first import that may need it."""

    own_spec: Any = None

    def __getattr__(self, name: str) -> Any:
        if name[:2] == "__":
            raise AttributeError(name)
        return getattr(self.load(), name)

    def load(self) -> Any:
        """Import the module itself."""
        import importlib

        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return importlib.import_module(self.__name__)

    def find_spec(self, name: str, *_: object) -> Any:
        """Load it before any other module of torch that is imported; that may come with it."""
        if not name.startswith("torch.") or name.startswith("torch.distributed."):
            return None
        from importlib.machinery import ModuleSpec

        try:
            self.load()
        except ImportError:  # another torch may have no such module
            return None
        module: Any = sys.modules.get(name)
        if module is None:
            return None
        self.own_spec = module.__spec__
        module.__spec__ = ModuleSpec(name, self)
        return module.__spec__

    def create_module(self, spec: Any) -> Any:
        """The module as it is already there."""
        return sys.modules[spec.name]

    def exec_module(self, module: Any) -> None:
        """Give it back its own spec; there is nothing left to run."""
        module.__spec__ = self.own_spec


def let_signals_end_the_exit_barrier() -> None:
    """A signal ends an agent that waits for the other agents.

    torch (`SimpleElasticAgent._exit_barrier`, `torch/distributed/elastic/agent/server/api.py`): an
    agent whose ranks have ended waits for the others for up to 300 s, in C++, where no handler of
    Python's runs, and then imports `torch._dynamo` for seconds to tell of it. It has nothing to
    save by then (decision 125). A signal counts that came before, too: torch raises an exception
    for it, which is lost where it meets the writing of a log line.
    """
    import signal
    import threading

    from torch.distributed.elastic.agent.server.api import SimpleElasticAgent

    agent: Any = SimpleElasticAgent
    exit_barrier = agent._exit_barrier
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)

    def end_on_signal() -> None:
        number = os.read(read, 1)[0]
        finish()
        os._exit(128 + number)

    def wait_for_others(self: Any) -> None:
        threading.Thread(target=end_on_signal, daemon=True).start()
        exit_barrier(self)

    agent._exit_barrier = wait_for_others


def apply_patches(patches: Sequence[Patch]) -> None:
    """Apply all patches that this torch allows; say which behaviour is lost with the others."""
    for patch, behaviour in patches:
        try:
            patch()
        except (ImportError, AttributeError) as error:
            warn_once(behaviour, error)


def finish() -> None:
    """Do what is to be done at the end; once."""
    while at_end:
        at_end.pop()()


def run_with_exit_codes(torchrun: Callable[[], None]) -> None:
    """Run torchrun, and end with the code of the first rank that failed.

    torch (`torch/distributed/elastic/multiprocessing`) raises ChildFailedError for failed ranks and
    SignalException for a signal of the agent's own. The latter ends by `os._exit`: an orderly end
    would close the rendezvous to all others for good, and the pod would wait for torch to be taken
    down, up to half a second.
    """
    try:
        torchrun()
    except Exception as error:
        finish()
        code = _code_of_first_failure(error)
        if code is not None:
            print(error, file=sys.stderr)
            sys.exit(code)
        sigval = getattr(error, "sigval", None)
        if sigval is None:
            raise
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(128 + sigval)
    finally:
        finish()


def _code_of_first_failure(error: Exception) -> int | None:
    """Of a ChildFailedError: 128 + n for signal n, 1 for a failure with code 0; else None."""
    try:
        first = error.get_first_failure()[1].exitcode  # type: ignore[attr-defined]
    except (AttributeError, LookupError, TypeError) as missing:
        if type(error).__name__ == "ChildFailedError":
            warn_once("exit code of the rank that failed first", missing)
        return None
    return 128 - first if first < 0 else first or 1


def main(*patches: Patch) -> None:
    """Be torchrun, with its arguments; `patches` come on top of those for every launch."""
    leave_own_folder_out()
    end_on_sigterm()
    let_ranks_be_observed()
    torchrun = import_torchrun()
    apply_patches(((let_signals_end_the_exit_barrier, WAITS_AT_END), *patches))
    run_with_exit_codes(torchrun)
