"""What runs in the place of torchrun: the very same program in the very same process.

torchrun turns every failure into exit code 1. This ends with the exit code of the first rank that
failed, 128 + n for signal n, so that the restart policy ExitCode means something (decision 19).
"""

from __future__ import annotations

_PROGRAM = """\
import gc, os, signal, sys, threading
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
gc.disable()
if sys.path[:1] == [os.path.dirname(sys.argv[0])]: del sys.path[0]
sys.argv[0] = "torchrun"
from torch.distributed.run import main
from torch.distributed.elastic.agent.server.api import SimpleElasticAgent
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
gc.enable()
read, write = os.pipe()
os.set_blocking(write, False)
signal.set_wakeup_fd(write)
wait = SimpleElasticAgent._exit_barrier
def wait_for_others(self):
    leave = lambda: os._exit(128 + os.read(read, 1)[0])
    threading.Thread(target=leave, daemon=True).start()
    wait(self)
SimpleElasticAgent._exit_barrier = wait_for_others
{more}try:
    main()
except ChildFailedError as error:
    print(error, file=sys.stderr)
    code = error.get_first_failure()[1].exitcode
    sys.exit(128 - code if code < 0 else code or 1)
except SignalException as error:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(128 + error.sigval)
"""
"""As `torchrun`, with exit codes.

SIGTERM before torchrun handles it: as process 1 of a container it would be ignored otherwise. It
leaves by `os._exit`, because an orderly end would close the rendezvous to all others for good, and
later too, because the pod waits for nothing else: taking torch down costs up to half a second.
While torch is imported nothing is garbage: to look for some takes a tenth of the time
(decision 163).
An agent whose ranks have ended waits for the others for up to 300 s, in C++, where no handler of
Python's runs, and then may take seconds to tell of it (it imports `torch._dynamo` for that): it has
nothing to save, so a signal ends it (decision 125), also one that came before: torch raises an
exception for it, which is lost where it meets the writing of a log line. The working directory, or
our own, is taken off the path of the agent (not of the ranks), as for `torchrun`.
"""


def program(more: str = "") -> str:
    """Python, for `-c` or a file of its own; `more` is what else it does before it starts."""
    return _PROGRAM.format(more=more)
