"""What runs in the place of torchrun, with a torch that has other private names than ours.

A small torch stands for it, one name of which is different: the launch goes on as torch's own, with
the exit code of the rank, and says once what it does without.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.payloads.shipping import torchrun_program
from trainyard.payloads.torchrun.torchrun_elastic import (
    FORGIVES,
    LEAVES_OPEN,
    MEETS_AGAIN,
    MISSES_MEMBERS,
)
from trainyard.payloads.torchrun.torchrun_program import WAITS_AT_END
from trainyard.payloads.torchrun.torchrun_ranks import (
    ASKS_RANKS_ALONE,
    SHOWS_LAST_CRASH,
    TAGS_LINES,
)

TORCH = {
    "__init__.py": "",
    "another.py": "",
    "distributed/__init__.py": "class DistStoreError(RuntimeError): pass\n",
    "distributed/elastic/agent/server/api.py": """
import torch.distributed
class WorkerState:
    HEALTHY, FAILED, UNHEALTHY = "HEALTHY", "FAILED", "UNHEALTHY"
class RunResult:
    def __init__(self, state):
        self.state = state
class SimpleElasticAgent:
    tries = 0
    def _exit_barrier(self):
        print("waited")
    def _rendezvous(self, group):
        self.tries += 1
        if self.tries == 1:
            raise torch.distributed.DistStoreError("gone")
        return self.tries
    def _monitor_workers(self, group):
        return RunResult(state=WorkerState.FAILED)
""",
    "distributed/elastic/agent/server/local_elastic_agent.py": """
from torch.distributed.elastic.agent.server.api import SimpleElasticAgent
class LocalElasticAgent(SimpleElasticAgent):
    pass
""",
    "distributed/elastic/rendezvous/dynamic_rendezvous.py": """
import types
class RendezvousError(Exception):
    pass
class _RendezvousExitOp:
    pass
class _Executor:
    def run(self, operation, deadline):
        print(type(operation).__name__)
class DynamicRendezvousHandler:
    def __init__(self):
        self._this_node = 0
        state = types.SimpleNamespace(participants=[0, 1], closed=False)
        self._state_holder = types.SimpleNamespace(state=state)
        self._op_executor = _Executor()
        self._settings = types.SimpleNamespace(timeout=types.SimpleNamespace(close=1))
    def next_rendezvous(self):
        return "info"
    def num_nodes_waiting(self):
        return 0
    def shutdown(self):
        print("closed")
        return True
    def _stop_heartbeats(self):
        pass
    def _get_deadline(self, limit):
        return limit
""",
    "distributed/elastic/multiprocessing/api.py": """
import subprocess
class SubprocessHandler:
    def __init__(self, args, env):
        self._stdout = self._stderr = None
        self.proc = self._popen(args, env)
    def _popen(self, args, env):
        return subprocess.Popen(
            args, env=env, stdout=self._stdout, stderr=self._stderr, start_new_session=True
        )
    def close(self, death_sig=None):
        print("closed its group")
        self.proc.kill()
class SubprocessContext:
    def __init__(self, handlers):
        self.subprocess_handlers = handlers
        self._start()
    def _start(self):
        pass
    def _close(self, death_sig, timeout=30):
        for handler in self.subprocess_handlers.values():
            handler.close(death_sig)
            if handler.proc.wait() == -15:
                print("asked it alone")
""",
    "distributed/elastic/multiprocessing/errors.py": """
import types
class ChildFailedError(Exception):
    def get_first_failure(self):
        return 0, types.SimpleNamespace(exitcode=-9)
""",
    "distributed/run.py": """
import os, signal, types
import torch.distributed
from torch.distributed.elastic.agent.server import local_elastic_agent
from torch.distributed.elastic.multiprocessing.api import SubprocessContext, SubprocessHandler
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import dynamic_rendezvous
def main():
    handler = dynamic_rendezvous.DynamicRendezvousHandler()
    agent = local_elastic_agent.LocalElasticAgent()
    group = types.SimpleNamespace(spec=types.SimpleNamespace(rdzv_handler=handler))
    handler.next_rendezvous()
    try:
        print("met", agent._rendezvous(group))
    except torch.distributed.DistStoreError:
        print("gave up")
    handler._state_holder.state.participants.pop()
    print("missing", handler.num_nodes_waiting())
    print(agent._monitor_workers(group).state)
    try:
        raise ValueError
    except ValueError:
        handler.shutdown()
    agent._exit_barrier()
    env = {"RANK": "3", "LOCAL_WORLD_SIZE": "2"}
    rank = SubprocessHandler(["sh", "-c", "echo begun; kill -STOP $$; exec sleep 9"], env)
    os.waitpid(rank.proc.pid, os.WUNTRACED)
    os.kill(rank.proc.pid, signal.SIGCONT)
    SubprocessContext({0: rank})._close(15)
    from torch import another
    raise ChildFailedError("a rank failed")
""",
}
WHOLE = [
    *("met 2", "missing 1", "HEALTHY", "_RendezvousExitOp", "waited"),
    *("asked it alone", "[rank3]: begun"),
]
LOST: dict[str, dict[str, str]] = {
    WAITS_AT_END: {},
    MISSES_MEMBERS: {"missing 1": "missing 0", "HEALTHY": "FAILED"},
    LEAVES_OPEN: {"_RendezvousExitOp": "closed"},
    FORGIVES: {"HEALTHY": "FAILED"},
    MEETS_AGAIN: {"met 2": "gave up"},
    ASKS_RANKS_ALONE: {"asked it alone": "closed its group"},
    SHOWS_LAST_CRASH: {},
    TAGS_LINES: {"[rank3]: begun": "begun"},
}
"""What torch's own does instead where we do without one behaviour."""
RENAMED = {
    "_exit_barrier": [WAITS_AT_END],
    "SimpleElasticAgent": [WAITS_AT_END],
    "next_rendezvous": [MISSES_MEMBERS],
    "_state_holder": [MISSES_MEMBERS],
    "participants": [MISSES_MEMBERS],
    "closed": [MISSES_MEMBERS],
    "_this_node": [MISSES_MEMBERS],
    "num_nodes_waiting": [MISSES_MEMBERS, FORGIVES],
    "shutdown": [LEAVES_OPEN],
    "_RendezvousExitOp": [LEAVES_OPEN],
    "RendezvousError": [LEAVES_OPEN],
    "_stop_heartbeats": [LEAVES_OPEN],
    "_get_deadline": [LEAVES_OPEN],
    "_settings": [LEAVES_OPEN],
    "timeout": [LEAVES_OPEN],
    "_op_executor": [LEAVES_OPEN],
    "DynamicRendezvousHandler": [MISSES_MEMBERS, LEAVES_OPEN],
    "dynamic_rendezvous": [MISSES_MEMBERS, LEAVES_OPEN],
    "_monitor_workers": [FORGIVES],
    "RunResult": [FORGIVES],
    "WorkerState": [FORGIVES],
    "state": [MISSES_MEMBERS, FORGIVES],
    "rdzv_handler": [FORGIVES],
    "_rendezvous": [MEETS_AGAIN],
    "LocalElasticAgent": [FORGIVES, MEETS_AGAIN],
    "local_elastic_agent": [FORGIVES, MEETS_AGAIN],
    "DistStoreError": [],
    "SubprocessHandler": [ASKS_RANKS_ALONE, TAGS_LINES],
    "SubprocessContext": [ASKS_RANKS_ALONE, SHOWS_LAST_CRASH],
    "_start": [SHOWS_LAST_CRASH],
    "proc": [ASKS_RANKS_ALONE],
    "_close": [ASKS_RANKS_ALONE],
    "_stdout": [ASKS_RANKS_ALONE, TAGS_LINES],
    "_popen": [TAGS_LINES],
}
"""Private names, and what a launch does without where torch has no such name."""


def launch(folder: Path, renamed: str = "") -> subprocess.CompletedProcess[str]:
    for name, text in TORCH.items():
        if renamed:
            pattern = rf"\b{renamed}\b(?=\.|\b)(?!')"
            name, text = (re.sub(pattern, f"{renamed}_2", each) for each in (name, text))
        path = folder / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return subprocess.run(
        [sys.executable, "-c", torchrun_program(elastic=True)],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Its lines, with the rank's last: the agent's own are written when it ends."""
    return sorted(done.stdout.splitlines(), key=lambda line: line.endswith("begun"))


def test_a_torch_with_all_names_is_patched(tmp_path: Path) -> None:
    done = launch(tmp_path)
    assert (done.returncode, said(done)) == (137, WHOLE), done.stderr
    assert "this torch has no" not in done.stderr


@pytest.mark.parametrize("name", RENAMED)
def test_without_a_name_the_launch_goes_on_and_says_what_is_lost(tmp_path: Path, name: str) -> None:
    done = launch(tmp_path, name)
    expected = list(WHOLE)
    for behaviour in RENAMED[name]:
        expected = [LOST[behaviour].get(line, line) for line in expected]
        assert done.stderr.count(f"trainyard: this torch has no {behaviour} (") == 1, done.stderr
    assert done.stderr.count("this torch has no") == len(RENAMED[name]), done.stderr
    assert done.returncode == 137
    assert [line.replace("_2", "") for line in said(done)] == expected


def test_without_the_failures_of_ranks_torchruns_own_exit_code_stays(tmp_path: Path) -> None:
    done = launch(tmp_path, "get_first_failure")
    assert done.returncode == 1
    assert done.stderr.count("no exit code of the rank that failed first (") == 1
    assert "ChildFailedError: a rank failed" in done.stderr
