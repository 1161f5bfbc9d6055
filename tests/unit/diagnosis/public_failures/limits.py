"""Memory, files, disks, shared memory and time."""

# ruff: noqa: E501

from __future__ import annotations

from tests.unit.diagnosis.public_failures.row import NOT_THE_CODE, PublicFailure, rank_1

_SMALL = {"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}


def volume(path: str) -> dict[str, dict[str, object]]:
    """A small volume at a path."""
    return {
        "container": {"volumeMounts": [{"name": "small", "mountPath": path}]},
        "pod": {"volumes": [{"name": "small", **_SMALL}]},
    }


ROWS = (
    rank_1("more memory than its limit", "held = bytearray(600 << 20)\n",
           (r"more memory than it may",), remedy=(r"resources\.limits\.memory",),
           never=(NOT_THE_CODE, r"dmesg"),
           container={"resources": {"limits": {"memory": "300Mi"}}}),
    PublicFailure("more memory than there is", "rows = bytearray(1 << 60)\n",
           (r"MemoryError", r"not enough memory"), "rows = ", (r"ask for less|less memory",),
           (NOT_THE_CODE, r"limits\.memory")),
    PublicFailure("a tensor that is too large", "import torch\nx = torch.empty(1 << 50)\n",
           (r"allocate memory", r"not enough memory"), "x = torch.empty", (r"ask for less|less",),
           (NOT_THE_CODE,)),
    PublicFailure("the GPU's memory", """\
import torch
def forward(x):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which 1.12 GiB is free.")
forward(1)
""", (r"CUDA out of memory", r"GPU's memory|memory of GPU 0"), "raise torch", (r"smaller batch",), (NOT_THE_CODE,)),
    PublicFailure("more open files than it may", """\
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = [open(os.devnull) for shard in range(100)]
""", (r"Too many open files",), "held = ", (r"ulimit -n",), (NOT_THE_CODE,)),
    PublicFailure("a full volume", """\
with open("/scratch/tokens.bin", "wb") as out:
    for shard in range(64):
        out.write(bytes(1 << 20))
""", (r"No space left on device", r"volume small|/scratch"), "out.write",
           (r"room|sizeLimit",), (NOT_THE_CODE,), **volume("/scratch")),
    PublicFailure("a quota", """\
import errno, os
def save(path):
    raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), path)
save("/home/ada/run/ckpt.pt")
""", (r"Disk quota exceeded", r"full"), "raise OSError", (r"room",), (NOT_THE_CODE,)),
    PublicFailure("small shared memory", """\
import torch
from torch.utils.data import DataLoader, Dataset
class Images(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return torch.ones(1 << 20)
for batch in DataLoader(Images(), batch_size=4, num_workers=1):
    pass
""", (r"/dev/shm|shared memory|small",), remedy=(r"/dev/shm|sizeLimit|workers",),
           never=(NOT_THE_CODE,), **volume("/dev/shm")),
    PublicFailure("a deadline", "import time\ntime.sleep(3600)\n", (r"(?i)deadline|timeout|longer",),
           remedy=(r"--timeout|activeDeadlineSeconds",), who="", options={"timeout_seconds": 4}),
    PublicFailure("more threads than it may", """\
import resource, threading, time
resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
for worker in range(1000):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
""", (r"can't start new thread",), ".start()", (r"fewer|ulimit|OMP_NUM_THREADS",),
           (NOT_THE_CODE,)),
)  # fmt: skip
