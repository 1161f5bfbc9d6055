"""Signals and quiet ends."""

# ruff: noqa: E501

from __future__ import annotations

from tests.unit.diagnosis.public_failures.row import NOT_THE_CODE, PublicFailure, rank_1, ranks

ROWS = (
    rank_1("killed", "os.kill(os.getpid(), 9)\n", (r"killed \(SIGKILL\)",), remedy=(r"dmesg",),
           never=(NOT_THE_CODE,)),
    ranks("killed amid a collective", "if rank == 1:\n    os.kill(os.getpid(), 9)\n"
           "dist.all_reduce(x)\n", (r"SIGKILL",), remedy=(r"dmesg",),
           never=(NOT_THE_CODE, r"Connection closed")),
    rank_1("terminated", "os.kill(os.getpid(), 15)\ntime.sleep(60)\n", (r"SIGTERM",),
           never=(NOT_THE_CODE,)),
    rank_1("interrupted", "import signal\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n",
           (r"SIGINT|KeyboardInterrupt", r"interrupted|Ctrl-C"), remedy=(r"run it again",),
           never=(NOT_THE_CODE,)),
    rank_1("segmentation fault", "import ctypes\ndef gather():\n    ctypes.string_at(0)\ngather()\n",
           (r"Segmentation fault|SIGSEGV",), "ctypes.string_at", (r"what that line calls",)),
    rank_1("aborted", "def check():\n    os.abort()\ncheck()\n", (r"Aborted|SIGABRT",),
           "os.abort()", (r"what that line calls",)),
    ranks("a worker of the loader killed", """\
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        os.kill(os.getpid(), 9)
if rank == 1:
    list(DataLoader(Data(), num_workers=1))
dist.all_reduce(x)
""", (r"DataLoader worker", r"killed"), remedy=(r"memory", r"num_workers|fewer workers"),
           never=(NOT_THE_CODE,)),
    PublicFailure("a process of a pool killed", """\
import concurrent.futures, os
if __name__ == "__main__":
    with concurrent.futures.ProcessPoolExecutor(1) as pool:
        pool.submit(os._exit, 9).result()
""", (r"terminated abruptly", r"process .*started was killed|a process"),
           remedy=(r"memory|fewer processes",), never=(NOT_THE_CODE,)),
    ranks("a rank that leaves without a word", "if rank == 1:\n    os._exit(3)\ndist.all_reduce(x)\n",
           (r"exit code 3", r"wrote nothing|stood at"), never=(NOT_THE_CODE, r"Connection closed")),
    PublicFailure("a subprocess killed", """\
import subprocess
subprocess.run(["sh", "-c", "kill -9 $$"], check=True)
""", (r"SIGKILL",), remedy=(r"memory|dmesg|that one wrote",), never=(NOT_THE_CODE,)),
)  # fmt: skip
