"""A program that hangs, or is slow, in the way that its last argument names: one rank of several.

`# HANG` marks the lines of which one is to be named. Each warms up with a few collectives.
"""

from __future__ import annotations

import ctypes
import datetime
import hashlib
import itertools
import json
import multiprocessing
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ODD = 1
"""The rank that misbehaves."""
LONG = 3600.0
SLOW = float(os.environ.get("SLOW", "14"))
"""Seconds for which a healthy one keeps the others waiting."""
FOLDER = tempfile.gettempdir()
HEALTHY, HANGS = {}, {}


def hangs(function):
    HANGS[function.__name__] = function
    return function


def healthy(function):
    HEALTHY[function.__name__] = function
    return function


class Data(Dataset):
    def __init__(self, mode):
        self.mode = mode

    def __len__(self):
        return 64

    def __getitem__(self, index):
        if self.mode == "dead" and index == 24:
            threading.Event().wait()
        if self.mode == "slow" and index == 0:
            burn(SLOW)
        return torch.ones(4)


def burn(seconds):
    end, x = time.time() + seconds, torch.ones(64, 64)
    while time.time() < end:
        x = torch.tanh(x @ x)


def loader(mode):
    return DataLoader(Data(mode if RANK == ODD else ""), batch_size=4, num_workers=2)


def wait_for_peer():
    print("warm", time.time(), flush=True)
    time.sleep(LONG)  # HANG


@hangs
def skipped(t):
    if RANK == ODD:
        wait_for_peer()
    dist.all_reduce(t)


def record_as_nccl(begun):
    """Have torch show a recorder of NCCL, whose last collective of `begun` has not completed."""
    number = {"process_group": ["0", "default_pg"], "is_p2p": False, "pg_id": 0}
    entries = [
        {
            "collective_seq_id": each,
            **number,
            "profiling_name": "nccl:all_reduce",
            "retired": each < 6,
            "state": "completed" if each < 6 else "scheduled",
            "time_created_ns": time.time_ns() + each,
        }
        for each in range(1, begun + 1)
    ]
    status = {"last_enqueued_collective": str(begun), "last_completed_collective": "5"}

    def dump(has_entries, only_active):
        told = {"entries": entries} if has_entries else {}
        return json.dumps({**told, "pg_status": {"0": status}}).encode()

    torch._C._distributed_c10d._dump_nccl_trace_json = dump  # type: ignore[attr-defined]


@hangs
def spins_for_device(t):
    record_as_nccl(5 if RANK == ODD else 6)
    if RANK == ODD:
        wait_for_peer()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 1 << 30)


@hangs
def event(t):
    if RANK == ODD:
        threading.Event().wait()  # HANG
    dist.all_reduce(t)


@hangs
def lock(t):
    if RANK == ODD:
        held = threading.Lock()
        held.acquire()
        held.acquire()  # HANG
    dist.all_reduce(t)


@hangs
def two_locks(t):
    if RANK == ODD:
        a, b = threading.Lock(), threading.Lock()

        def other():
            with b:
                time.sleep(0.5)
                with a:
                    pass

        with a:
            threading.Thread(target=other, daemon=True).start()
            time.sleep(0.2)
            with b:  # HANG
                pass
    dist.all_reduce(t)


@hangs
def condition(t):
    if RANK == ODD:
        ready = threading.Condition()
        with ready:
            ready.wait()  # HANG
    dist.all_reduce(t)


@hangs
def joins_thread(t):
    if RANK == ODD:
        thread = threading.Thread(target=threading.Event().wait, daemon=True)
        thread.start()
        thread.join()  # HANG
    dist.all_reduce(t)


@hangs
def empty_queue(t):
    if RANK == ODD:
        queue.Queue().get()  # HANG
    dist.all_reduce(t)


@hangs
def process_queue(t):
    if RANK == ODD:
        multiprocessing.Queue().get()  # HANG
    dist.all_reduce(t)


@hangs
def fifo(t):
    if RANK == ODD:
        path = os.path.join(FOLDER, f"fifo-{os.getpid()}")
        os.mkfifo(path)
        with open(path) as file:  # HANG
            file.read()
    dist.all_reduce(t)


@hangs
def pipe(t):
    if RANK == ODD:
        reader, _ = os.pipe()
        os.read(reader, 1)  # HANG
    dist.all_reduce(t)


@hangs
def dead_socket(t):
    if RANK == ODD:
        one, _other = socket.socketpair()
        one.recv(1)  # HANG
    dist.all_reduce(t)


@hangs
def nobody_connects(t):
    if RANK == ODD:
        server = socket.socket()
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.accept()  # HANG
    dist.all_reduce(t)


@hangs
def child_never_ends(t):
    if RANK == ODD:
        subprocess.run(["sleep", str(LONG)])  # HANG
    dist.all_reduce(t)


@hangs
def file_never_comes(t):
    if RANK == ODD:
        while not os.path.exists("/nowhere/marker"):  # HANG
            time.sleep(0.05)  # HANG
    dist.all_reduce(t)


@hangs
def file_lock(t):
    import fcntl

    if RANK == ODD:
        path = os.path.join(FOLDER, f"lock-{os.getpid()}")
        with open(path, "w") as one, open(path, "w") as other:
            fcntl.flock(one, fcntl.LOCK_EX)
            fcntl.flock(other, fcntl.LOCK_EX)  # HANG
    dist.all_reduce(t)


@hangs
def endless_loop(t):
    if RANK == ODD:
        done = False
        while not done:  # HANG
            pass  # HANG
    dist.all_reduce(t)


@hangs
def endless_check(t):
    if RANK == ODD:
        flags = {"done": False}
        while not flags["done"]:  # HANG
            flags.get("done")  # HANG
    dist.all_reduce(t)


@hangs
def waits_for_signal(t):
    if RANK == ODD:
        signal.pause()  # HANG
    dist.all_reduce(t)


@hangs
def semaphore(t):
    if RANK == ODD:
        multiprocessing.Semaphore(0).acquire()  # HANG
    dist.all_reduce(t)


@hangs
def c_call(t):
    if RANK == ODD:
        ctypes.CDLL(None).pause()  # HANG
    dist.all_reduce(t)


@hangs
def mismatched(t):
    if RANK == ODD:
        dist.broadcast(t, 0)  # HANG
        dist.barrier()
    else:
        dist.all_reduce(t)


@hangs
def reordered(t):
    first, second = dist.new_group(list(range(SIZE))), dist.new_group(list(range(SIZE)))
    a, b = (second, first) if RANK == ODD else (first, second)
    dist.all_reduce(t, group=a)  # HANG
    dist.all_reduce(t, group=b)


@hangs
def one_step_less(t):
    for _ in range(5 - (RANK == ODD)):
        dist.all_reduce(t)
    if RANK == ODD:
        dist.barrier()  # HANG
    dist.all_reduce(t)


@hangs
def dataloader(t):
    for _ in loader("dead"):  # HANG
        dist.all_reduce(t)


@hangs
def store_key(t):
    if RANK == ODD:
        keeper = dist.distributed_c10d._get_default_store()
        keeper.get("nobody-sets-this")  # HANG
    dist.all_reduce(t)


@hangs
def store_wait(t):
    if RANK == ODD:
        keeper = dist.distributed_c10d._get_default_store()
        keeper.wait(["never"], datetime.timedelta(seconds=LONG))  # HANG
    dist.all_reduce(t)


@hangs
def monitored(t):
    if RANK == ODD:
        threading.Event().wait()  # HANG
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=LONG))


@hangs
def asynchronous(t):
    if RANK == ODD:
        wait_for_peer()
    handle = dist.all_reduce(t, async_op=True)
    handle.wait()


@hangs
def objects(t):
    if RANK == ODD:
        wait_for_peer()
    dist.broadcast_object_list([{"a": 1}], 0)


@hangs
def barrier(t):
    if RANK == ODD:
        wait_for_peer()
    dist.barrier()


@hangs
def gathers(t):
    if RANK == ODD:
        wait_for_peer()
    dist.all_gather([torch.ones(4) for _ in range(SIZE)], t)


@hangs
def sends(t):
    if RANK == 0:
        dist.recv(t, ODD)
    elif RANK == ODD:
        wait_for_peer()
    dist.barrier()


@hangs
def both_receive(t):
    if RANK < 2:
        dist.recv(t, 1 - RANK)  # HANG
    dist.barrier()


@hangs
def subgroup(t):
    pair = dist.new_group([0, 1])
    if RANK == ODD:
        wait_for_peer()
    if RANK < 2:
        dist.all_reduce(t, group=pair)
    dist.barrier()


@hangs
def ddp(t):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    for step in range(10):
        if RANK == ODD and step == 7:
            wait_for_peer()
        model(torch.ones(8, 64)).sum().backward()


@hangs
def ddp_uneven(t):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    for _ in range(10 - (RANK == ODD)):
        model(torch.ones(8, 64)).sum().backward()
    if RANK == ODD:
        wait_for_peer()


@hangs
def fsdp(t):
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(3)])
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    for step in range(12):
        if RANK == ODD and step == 7:
            wait_for_peer()
        model(torch.ones(8, 64)).sum().backward()


@hangs
def everybody(t):
    path = os.path.join(FOLDER, f"fifo-{os.getpid()}")
    os.mkfifo(path)
    with open(path) as file:  # HANG
        file.read()


def stop(rest):
    subprocess.Popen(["sh", "-c", f"kill -STOP {os.getpid()}; {rest}"]).wait()  # HANG


@hangs
def stopped(t):
    if RANK == ODD:
        stop("true")
    dist.all_reduce(t)


@hangs
def holds_interpreter(t):
    if RANK == ODD:
        sum(itertools.repeat(0))  # HANG
    dist.all_reduce(t)


@healthy
def evaluation(t):
    if RANK == 0:
        burn(SLOW)
    dist.all_reduce(t)


@healthy
def stopped_a_while(t):
    for _ in range(2):
        if RANK == ODD:
            stop(f"sleep {SLOW / 3}; kill -CONT {os.getpid()}")
        dist.all_reduce(t)


@healthy
def checkpoint(t):
    if RANK == 0:
        with tempfile.NamedTemporaryFile() as file:
            for _ in range(int(SLOW * 5)):
                file.write(b"x" * 65536)
                file.flush()
                time.sleep(0.2)
    dist.all_reduce(t)


@healthy
def first_batch(t):
    for _ in loader("slow"):
        dist.all_reduce(t)


@healthy
def compiles(t):
    if RANK == 0:
        code = f"import time\nend = time.time() + {SLOW}\nwhile time.time() < end: pass"
        subprocess.run([sys.executable, "-S", "-c", code], check=True)
    dist.all_reduce(t)


@healthy
def long_call(t):
    if RANK == ODD:
        end = time.time() + SLOW
        while time.time() < end:
            torch.linalg.svd(torch.randn(700, 700, dtype=torch.double))
    dist.all_reduce(t)


@healthy
def download(t):
    if RANK == 0:
        one, other = socket.socketpair()

        def feed():
            for _ in range(int(SLOW * 5)):
                time.sleep(0.2)
                other.send(b"z" * 1000)
            other.close()

        threading.Thread(target=feed, daemon=True).start()
        received = b""
        while data := one.recv(65536):
            received += data
    dist.all_reduce(t)


@healthy
def slow_steps(t):
    for _ in range(int(SLOW / 3)):
        time.sleep(3)
        dist.all_reduce(t)


@healthy
def quick_steps(t):
    for _ in range(int(SLOW * 80)):
        dist.all_reduce(t)
        time.sleep(0.01)


@healthy
def sorts(t):
    if RANK == ODD:
        end = time.time() + SLOW
        while time.time() < end:
            sorted(range(300_000), key=lambda value: -value)
    dist.all_reduce(t)


@healthy
def hashes(t):
    if RANK == ODD:
        end, found = time.time() + SLOW, b""
        while time.time() < end:
            found = hashlib.sha256(found * 1000).digest()
    dist.all_reduce(t)


@healthy
def holds_interpreter_a_while(t):
    if RANK == ODD:
        sum(itertools.repeat(0, int(SLOW * 1e8)))
    dist.all_reduce(t)


@healthy
def everybody_sleeps(t):
    time.sleep(SLOW)
    dist.all_reduce(t)


@healthy
def counts_attribute(t):
    class Counter:
        value = 0

    counter, end = Counter(), time.time() + SLOW
    if RANK == ODD:
        while time.time() < end:
            counter.value += 1
    dist.all_reduce(t)


@healthy
def torch_compile(t):
    layers = [
        torch.nn.Sequential(
            torch.nn.Linear(32, 32 + i), torch.nn.GELU(), torch.nn.Linear(32 + i, 32)
        )
        for i in range(8)
    ]
    model = torch.nn.Sequential(*layers)
    model = torch.compile(model) if RANK == 0 else model
    model(torch.ones(8, 32)).sum().backward()
    dist.all_reduce(t)


def main():
    case = sys.argv[-1]  # launchers put options of theirs before it
    if "STARVED" in os.environ:  # on one core, with as many others as that says
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if case == "serves":
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            dist.init_process_group("gloo")
            if RANK == 0:
                server.accept()
            dist.broadcast(torch.ones(4), 0)
    if case == "wrong_world_size":
        os.environ["WORLD_SIZE"] = str(SIZE + 1)
        print("warm", time.time(), flush=True)
        dist.init_process_group("gloo")  # HANG
    dist.init_process_group("gloo")
    t = torch.ones(4)
    for _ in range(20):
        dist.all_reduce(t)
        time.sleep(0.2)  # each rank has reported by the end
    print("warm", time.time(), flush=True)
    ({**HANGS, **HEALTHY})[case](t)
    if case in HEALTHY:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
