"""A training of ranks that all do the same work, until a file of that name appears.

Each writes when it came to which collective, so that a test need not take anybody's word for it.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist

SIZE, STEP_SECONDS = 256, 0.2


def work(x: torch.Tensor, count: int) -> None:
    for _ in range(count):
        x = torch.tanh(x @ x)


def main(folder: str, case: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    x = torch.ones(SIZE, SIZE) / SIZE
    began = time.thread_time()
    work(x, 20)
    # Steps of so many seconds of CPU time.
    count = torch.tensor(max(1, round(20 * STEP_SECONDS / (time.thread_time() - began))))
    dist.broadcast(count, 0)
    ends = torch.zeros(1)
    with open(os.path.join(folder, f"rank-{rank}"), "w", buffering=1) as file:
        for step in range(1 << 20):
            work(x, int(count) * (12 if case == "first" and not step and rank == 1 else 1))
            if case == "evaluates" and rank == 0 and step % 20 == 10:
                work(x, int(count) * 8)
            ends[0] = rank == 0 and os.path.exists(os.path.join(folder, "end"))
            file.write(f"{time.time()}\n")
            dist.all_reduce(ends)
            if ends:
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
