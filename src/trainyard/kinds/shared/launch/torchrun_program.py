"""What runs in the place of torchrun: the very same program in the very same process.

torchrun turns every failure into exit code 1. This ends with the exit code of the first rank that
failed, 128 + n for signal n, so that the restart policy ExitCode means something (decision 19).
"""

from __future__ import annotations

from trainyard.kinds.shared.pods.pod_contract import OBSERVE, OBSERVER_PATH

_PROGRAM = """\
import os, sys
if sys.path[:1] == [os.path.dirname(sys.argv[0])]: del sys.path[0]
import gc, importlib, signal, threading, types
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
path = os.environ.get("PYTHONPATH", "")
if os.environ.get("{variable}") and "{observer}" not in path.split(":"):
    os.environ["PYTHONPATH"] = "{observer}:" + path if path else "{observer}"
gc.disable()
class Unasked(types.ModuleType):
    def __getattr__(self, name):
        if name[:2] == "__":
            raise AttributeError(name)
        return getattr(self.load(), name)
    def load(self):
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return importlib.import_module(self.__name__)
    def find_spec(self, name, *_):
        if name.startswith("torch.") and not name.startswith("torch.distributed."):
            self.load()
            if name in sys.modules:
                self.own = sys.modules[name].__spec__
                sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, self)
                return sys.modules[name].__spec__
    def create_module(self, spec):
        return sys.modules[spec.name]
    def exec_module(self, module):
        module.__spec__ = self.own
shapes = sys.modules["torch._meta_registrations"] = Unasked("torch._meta_registrations")
sys.argv[0] = "torchrun"
from torch.distributed.run import main
from torch.distributed.elastic.agent.server.api import SimpleElasticAgent
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
sys.meta_path.insert(0, shapes)
gc.freeze()
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
While torch is imported nothing is garbage, and what is there then stays: looking for some, in the
course of it, right after it and at exit, would take a third of the agent's time (decisions 163 and
210). A fifth is how operators compute shapes without data, which torch loads last of all and no
agent asks: it is there as soon as anything else of torch is imported (decision 210).
An agent whose ranks have ended waits for the others for up to 300 s, in C++, where no handler of
Python's runs, and then may take seconds to tell of it (it imports `torch._dynamo` for that): it has
nothing to save, so a signal ends it (decision 125), also one that came before: torch raises an
exception for it, which is lost where it meets the writing of a log line. The working directory, or
our own, is taken off the path of the agent (not of the ranks), as for `torchrun`. Its ranks are
observed where the pod says so (decision 223).
"""


def program(more: str = "") -> str:
    """Python, for `-c` or a file of its own; `more` is what else it does before it starts."""
    return _PROGRAM.format(more=more, variable=OBSERVE, observer=OBSERVER_PATH)
