"""Times a matmul, and then collectives with one partner after the other, for the node check.

`node_check_runner` starts it with the Python of the image, whose torch it uses: nccl where there
are GPUs, else gloo. Each try is a process of its own, so that one that crashes or hangs does not
spoil the next. Runs in the user's image: standard library, Python 3.8, and torch.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

MATMUL_SECONDS = 200.0
REPEATS = 3
"""The best one counts, so that what else the machine does is not taken for the node."""
ON_CPU, ON_GPU, AT_ONCE = 1024, 4096, 8
"""Rows of the matrices, and how many products are one try on a GPU."""
ELEMENTS = 1 << 20
"""Of four bytes each, which are summed with the partner."""
LAST_SECONDS = 5.0
TEXT = 160
TOO_LONG = "it took too long"


def run_isolated(work: Callable[[], float], until: float) -> dict[str, Any]:
    """How many seconds it says it took, as a process of its own; or what became of it."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            found: dict[str, Any] = {"seconds": work(), "error": ""}
        except BaseException as error:
            first = (str(error).strip().splitlines() or [""])[0]
            found = {"seconds": 0.0, "error": f"{type(error).__name__}: {first}"[:TEXT]}
        os.write(write, json.dumps(found).encode())
        os._exit(0)
    os.close(write)
    is_there = select.select([read], [], [], max(0.0, until - time.monotonic()))[0]
    answer = os.read(read, 4096) if is_there else b""
    os.close(read)
    if not is_there:
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    if answer:
        return dict(json.loads(answer))
    why = TOO_LONG if not is_there else f"it was ended by signal {os.WTERMSIG(status)}"
    return {"seconds": 0.0, "error": why}


def matmul(torch: Any) -> float:
    """Seconds of the best try, on a CPU those of one core that it used; of the slowest GPU."""
    if torch.cuda.is_available():
        return max(_on_gpu(torch, number) for number in range(torch.cuda.device_count()))
    torch.set_num_threads(1)
    ones, best = torch.ones(ON_CPU, ON_CPU), float("inf")
    for _ in range(REPEATS + 1):
        # Of the core alone: a machine that others use too is not a slow one.
        began = time.thread_time()
        product = ones @ ones
        best = min(best, time.thread_time() - began)
    _verify(bool((product == ON_CPU).all()))
    return best


def _on_gpu(torch: Any, number: int) -> float:
    ones, best = torch.ones(ON_GPU, ON_GPU, device=f"cuda:{number}"), float("inf")
    for _ in range(REPEATS + 1):
        torch.cuda.synchronize(number)
        began = time.perf_counter()
        for _ in range(AT_ONCE):
            product = ones @ ones
        torch.cuda.synchronize(number)
        best = min(best, time.perf_counter() - began)
    _verify(bool((product == ON_GPU).all()))
    return best


def _verify(is_right: bool) -> None:
    if not is_right:
        raise ArithmeticError("the result is wrong")


def all_reduce_with_partner(torch: Any, pair: dict[str, Any], key: str, until: float) -> float:
    """Seconds of the best sum with a partner."""
    host, port = str(pair["host"]), int(pair["port"])
    wait_until_reachable(host, port, until)
    dist = torch.distributed
    left = timedelta(seconds=max(1.0, until - time.monotonic()))
    store = dist.TCPStore(host, port, None, False, left)
    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = os.environ["NCCL_BLOCKING_WAIT"] = "1"
    has_gpu = torch.cuda.is_available()
    own = dist.PrefixStore(key, store)
    rank, backend = int(pair["rank"]), "nccl" if has_gpu else "gloo"
    dist.init_process_group(backend, store=own, rank=rank, world_size=2, timeout=left)
    data, best = torch.empty(ELEMENTS, device="cuda:0" if has_gpu else "cpu"), float("inf")
    for _ in range(REPEATS + 1):
        data.fill_(1)
        if has_gpu:
            torch.cuda.synchronize()
        began = time.perf_counter()
        dist.all_reduce(data)
        if has_gpu:
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - began)
    _verify(bool((data == 2).all()))
    own.set(f"done{rank}", "1")  # whoever is done first waits, since the other may yet receive
    own.wait([f"done{1 - rank}"], timedelta(seconds=LAST_SECONDS))
    return best


def wait_until_reachable(host: str, port: int, until: float) -> None:
    """Wait until the partner's name is known, and it answers. Raises OSError."""
    while True:
        try:
            socket.create_connection((host, port), max(1.0, until - time.monotonic())).close()
            return
        except OSError:
            if time.monotonic() + 1.0 > until:
                raise
            time.sleep(0.2)


def run_pairs(torch: Any, order: dict[str, Any], began: float) -> list[dict[str, Any]]:
    """What came of each."""
    found = []
    for pair in order["pairs"]:
        until, key = began + float(pair["until"]), f"{order['run']}/{pair['round']}"
        # Called at once, so the loop's variables are those of this turn.
        result = run_isolated(
            lambda: all_reduce_with_partner(torch, pair, key, until),  # noqa: B023
            until,
        )
        found.append({"replica": pair["replica"], **result})
    return found


def main() -> None:
    """Answer one line about the matmul, and one about the pairs that are read."""
    sys.path.pop(0)  # ours: programs that are mounted hide no modules of the image
    answers = os.fdopen(int(sys.argv[1]), "w", buffering=1)

    def send(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")

    try:
        torch: Any = importlib.import_module("torch")
        dist: Any = importlib.import_module("torch.distributed")
        if not dist.is_available():
            raise ImportError("it has no torch.distributed")
    except Exception as error:
        send({"port": 0, "error": f"torch cannot be used: {error}"[:TEXT]})
        return
    found = run_isolated(lambda: matmul(torch), time.monotonic() + MATMUL_SECONDS)
    if found["error"] == TOO_LONG:  # for want of a core, it may be: then nothing is known
        send({"port": 0, "error": f"a matmul took longer than {MATMUL_SECONDS:.0f} s"})
        return
    hour = timedelta(hours=1)
    store = dist.TCPStore("localhost", 0, None, True, hour, wait_for_workers=False)
    send({"port": store.port, **found})
    line = sys.stdin.readline()
    if line:
        send({"pairs": run_pairs(torch, json.loads(line), time.monotonic())})
        sys.stdin.readline()  # the partners may need the store as yet


if __name__ == "__main__":
    main()
