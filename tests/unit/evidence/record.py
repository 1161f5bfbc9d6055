"""Runs programs that fail, each twice, and keeps what a pod's status would say of both ends.

`python -m tests.unit.evidence.record` writes `failures.json` anew, or of it those whose names have
all the given words in them; it takes a few minutes, and wants torch. `L` marks what lasts: another start ends the same way. `P` passes, or may. A program is
Python, a shell line (`$ …`) or a script for torchrun (`torchrun 2:`); `@` stands for the number of
the run, 1 or 2.
"""

# ruff: noqa: E501

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainyard.podruntime.log_reader import last_lines

FILE = Path(__file__).parent / "failures.json"
_SERVER = """
import http.server, threading
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error(STATUS)
    def log_message(self, *a): pass
server = http.server.HTTPServer(('127.0.0.1', 0), H)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f'http://127.0.0.1:{server.server_port}/model.safetensors'
"""
_RANKS = """
import os, sys, datetime, torch, torch.distributed as dist
dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=5))
rank = dist.get_rank(); x = torch.ones(1)
dist.all_reduce(x)
"""
_PEERS = """
import os, sys, datetime, time, signal, multiprocessing as mp
import torch, torch.distributed as dist
def run(rank, port):
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE='2')
    dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=4))
    x = torch.ones(1); dist.all_reduce(x)
    if rank == 1:
        PEER
    dist.all_reduce(x)
if __name__ == '__main__':
    import socket
    s = socket.socket(); s.bind(('127.0.0.1', 0)); port = s.getsockname()[1]; s.close()
    mp.get_context('spawn').Process(target=run, args=(1, port), daemon=True).start()
    run(0, port)
"""


def _web(status: int, then: str = "import urllib.request; urllib.request.urlopen(url)") -> str:
    return _SERVER.replace("STATUS", str(status)) + then


PROGRAMS: dict[str, str] = {
    # What another start does not mend.
    "L module": "import json\nimport nets_of_mine",
    "L submodule": "import json.nowhere",
    "L import name": "from json import nosuchthing",
    "L syntax": "def train(:\n    pass",
    "L indentation": "def train():\nreturn 1",
    "L tabs": "if True:\n        x = 1\n\ty = 2",
    "L unclosed": "print('hello'",
    "L name": "print('start')\nprint(learning_rate)",
    "L unbound": "def f():\n    print(x)\n    x = 1\nf()",
    "L attribute": "import os\nos.nosuch()",
    "L none attribute": "model = None\nmodel.train()",
    "L type": "len(5)",
    "L missing argument": "def f(a, b): pass\nf(1)",
    "L str plus int": "'epoch ' + 1",
    "L value": "int('ten')",
    "L unpack": "a, b = (1, 2, 3)",
    "L key": "config = {}\nconfig['lr']",
    "L env": "import os\nos.environ['DATA_DIR_OF_MINE']",
    "L index": "[][0]",
    "L zero": "1 / 0",
    "L assertion": "assert 3 % 2 == 0, 'batch size must be even'",
    "L bare assertion": "assert False",
    "L recursion": "def f(): return f()\nf()",
    "L not implemented": "raise NotImplementedError('fp8')",
    "L own class": "class ConfigError(Exception): pass\nraise ConfigError('no optimizer')",
    "L chained": "try:\n    {}['a']\nexcept KeyError as e:\n    raise RuntimeError('bad config') from e",
    "L in handling": "try:\n    {}['a']\nexcept KeyError:\n    int('b')",
    "L nan guard": "import math\nloss = float('nan')\nif math.isnan(loss):\n    raise FloatingPointError('loss is nan at step 10')",
    "L nan exit": "import sys\nprint('step 10: loss is nan, giving up'); sys.exit(3)",
    "L nan anomaly": "import torch\nwith torch.autograd.detect_anomaly():\n    x = torch.zeros(1, requires_grad=True)\n    (x.sqrt() * 0).sum().backward()",
    "L file": "open('/data/train_of_mine.csv')",
    "L folder": "open('/tmp')",
    "L enospc": "open('/dev/full', 'w').write('x' * 100000)",
    "L enospc flush": "f = open('/dev/full', 'wb', buffering=0)\nf.write(b'x')",
    "L read only": "open('/sys/kernel/nosuch', 'w')",
    "L json": "import json\njson.loads('{')",
    "L unicode": "b'\\xff'.decode()",
    "L pickle": "import pickle\npickle.loads(b'nonsense')",
    "L yaml": "import yaml\nyaml.safe_load('a: [')",
    "L shape": "import torch\ntorch.ones(2, 3) @ torch.ones(2, 3)",
    "L shape linear": "import torch\ntorch.nn.Linear(4, 2)(torch.ones(1, 5))",
    "L no cuda": "import torch\ntorch.ones(1).cuda()",
    "L cuda device": "import torch\ntorch.ones(1, device='cuda:7')",
    "L dtype": "import torch\ntorch.ones(1, dtype=torch.long).requires_grad_()",
    "L state dict": "import torch\ntorch.nn.Linear(2, 2).load_state_dict({'w': torch.ones(1)})",
    "L target": "import torch\ntorch.nn.functional.cross_entropy(torch.ones(1, 2), torch.tensor([5]))",
    "L load": "import torch, io\ntorch.load(io.BytesIO(b'nope'))",
    "L no grad": "import torch\ntorch.ones(1).backward()",
    "L backward twice": "import torch\nx = torch.ones(1, requires_grad=True)\ny = (x * x).sum()\ny.backward(); y.backward()",
    "L torch oom": "import torch\ntorch.empty(1 << 50)",
    "L memory error": "bytearray(1 << 60)",
    "L loader": "import torch\nclass D(torch.utils.data.Dataset):\n    def __len__(self): return 4\n    def __getitem__(self, i): raise ValueError('sample is broken')\nif __name__ == '__main__':\n    list(torch.utils.data.DataLoader(D(), num_workers=1))",
    "L segfault": "import faulthandler, ctypes\nfaulthandler.enable()\nctypes.string_at(0)",
    "L quiet segfault": "import ctypes\nctypes.string_at(0)",
    "L abort": "import os\nos.abort()",
    "L argparse": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', required=True)\np.parse_args()",
    "L unknown option": "import argparse\nargparse.ArgumentParser().parse_args(['--epoch', '3'])",
    "L exit words": "import sys\nsys.exit('no checkpoint in /ckpt: give --resume-from')",
    "L exit code": "raise SystemExit(42)",
    "L logged": "import logging, sys\nlogging.basicConfig(format='%(asctime)s %(levelname)s %(message)s')\nlogging.error('vocabulary has 12 words, the model 30')\nsys.exit(2)",
    "L file not there": "$ python /nosuch/train.py",
    "L module not there": "$ python -m nosuchpackage.train",
    "L command not found": "$ nosuchcommand --train",
    "L not executable": "$ touch tool; ./tool",
    "L shell file": "$ cat /nosuch/list.txt && echo more",
    "L shell variable": "$ set -u; echo $NO_SUCH_VARIABLE_OF_MINE",
    "L bash syntax": "$ if true; then echo; done",
    "L tar": "$ echo nonsense > a.tar.gz; tar xzf a.tar.gz",
    "L unauthorized": _web(401),
    "L not found": _web(404),
    "L ranks module": "torchrun 2:import nets_of_mine",
    "L ranks value": "torchrun 2:" + _RANKS + "raise ValueError('all ranks agree')",
    "L ranks syntax": "torchrun 2:def f(:",
    "L rank one": "torchrun 2:"
    + _RANKS
    + "if rank == 1: raise ValueError('rank 1 has no data')\ndist.all_reduce(x)",
    "L ranks exit": "torchrun 2:import sys\nsys.exit(7)",
    "L peer value": _PEERS.replace("PEER", "dist.destroy_process_group(); os._exit(0)").replace(
        "    dist.all_reduce(x)\nif", "    raise ValueError('rank 0 has no data')\nif"
    ),
    # What may be different the next time.
    "P reset": "import socket, threading, struct\na = socket.create_server(('127.0.0.1', 0))\ndef serve():\n    c, _ = a.accept(); c.recv(1)\n    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); c.close()\nthreading.Thread(target=serve).start()\ns = socket.create_connection(a.getsockname()); s.send(b'xy'); s.recv(1); s.recv(1)",
    "P refused": "import socket\ns = socket.socket(); s.bind(('127.0.0.1', 0))\nsocket.create_connection(s.getsockname())",
    "P socket timeout": "import socket\na = socket.create_server(('127.0.0.1', 0))\ns = socket.create_connection(a.getsockname(), timeout=0.1); s.recv(1)",
    "P dns": "import socket\nsocket.create_connection(('no-such-host.invalid', 80))",
    "P broken pipe": "import os\nr, w = os.pipe(); os.close(r); os.write(w, b'x')",
    "P url refused": "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:9/x')",
    "P 503": _web(503),
    "P 500": _web(500),
    "P 502": _web(502),
    "P 504": _web(504),
    "P 429": _web(429),
    "P 503 hub": _web(
        503,
        "try:\n    import urllib.request; urllib.request.urlopen(url)\nexcept Exception as e:\n    raise OSError('We could not load the model from the hub') from e",
    ),
    "P 503 handled": _web(
        503,
        "import urllib.request\ntry:\n    urllib.request.urlopen(url)\nexcept Exception:\n    weights = None\n    weights.keys()",
    ),
    "P port taken": "import socket\na = socket.create_server(('127.0.0.1', 0))\nsocket.create_server(a.getsockname())",
    "P store port taken": "import torch.distributed as d, socket\na = socket.create_server(('127.0.0.1', 0))\nd.TCPStore('127.0.0.1', a.getsockname()[1], is_master=True)",
    "P store timeout": "import torch.distributed as d, datetime\nd.TCPStore('127.0.0.1', 9, is_master=False, timeout=datetime.timedelta(seconds=1))",
    "P store key": "import torch.distributed as d, datetime\ns = d.TCPStore('127.0.0.1', 0, is_master=True, timeout=datetime.timedelta(seconds=1))\ns.get('never')",
    "P killed": "import os\nos.kill(os.getpid(), 9)",
    "P terminated": "import os\nos.kill(os.getpid(), 15)",
    "P interrupted": "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time; time.sleep(5)",
    "P asks again": "raise SystemExit(138)",
    "P child killed": "import subprocess\nsubprocess.run(['sh', '-c', 'kill -9 $$'], check=True)",
    "P pool killed": "import os, concurrent.futures as f\nif __name__ == '__main__':\n    f.ProcessPoolExecutor(1).submit(os._exit, 9).result()",
    "P loader killed": "import torch, os\nclass D(torch.utils.data.Dataset):\n    def __len__(self): return 4\n    def __getitem__(self, i): os.kill(os.getpid(), 9)\nif __name__ == '__main__':\n    list(torch.utils.data.DataLoader(D(), num_workers=1))",
    "P queue": "raise TimeoutError('waited 10 s for the lock')",
    "P async": "import asyncio\nasyncio.run(asyncio.wait_for(asyncio.sleep(9), 0.1))",
    "P locked": "import sqlite3\na = sqlite3.connect('a.db'); a.execute('begin exclusive')\nsqlite3.connect('a.db', timeout=0.1).execute('begin exclusive')",
    "P busy": "import os, errno\nraise OSError(errno.EBUSY, os.strerror(errno.EBUSY))",
    "P io error": "import os, errno\nraise OSError(errno.EIO, os.strerror(errno.EIO), '/data/shard-3')",
    "P stale": "import os, errno\nraise OSError(errno.ESTALE, os.strerror(errno.ESTALE), '/nfs/shard-3')",
    "P again": "import os, errno\nraise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))",
    "P quiet": "raise SystemExit(1)",
    "P curl": "$ curl -sS --max-time 2 http://127.0.0.1:9/model.bin -o model.bin",
    "P curl 503": "$ echo 'curl: (22) The requested URL returned error: 503' >&2; exit 22",
    "P ssh": "$ ssh -o BatchMode=yes -o ConnectTimeout=2 -p 9 127.0.0.1 true || exit 255",
    "P git": "$ git clone -q http://127.0.0.1:9/repo.git",
    "P differs": "x = [0]\nif @ == 1:\n    x[5]\nint('ten')",
    "P differs in kind": "import sys\nsys.exit(2 + @)",
    "P ranks killed": "torchrun 2:"
    + _RANKS
    + "if rank == 1: os.kill(os.getpid(), 9)\ndist.all_reduce(x)",
    "P ranks terminated": "torchrun 2:"
    + _RANKS
    + "if rank == 1: os.kill(os.getpid(), 15)\ndist.all_reduce(x)",
    "P ranks timeout": "torchrun 2:"
    + _RANKS
    + "import time\nif rank == 1: time.sleep(12)\ndist.all_reduce(x)",
    "P ranks quiet": "torchrun 2:" + _RANKS + "if rank == 1: os._exit(1)\ndist.all_reduce(x)",
    "P rendezvous": "$ torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint no-such-host.invalid:29400 --rdzv-conf timeout=3,join_timeout=3,read_timeout=3 x.py",
    "P peer killed": _PEERS.replace("PEER", "os.kill(os.getpid(), 9)"),
    "P peer gone": _PEERS.replace("PEER", "os._exit(1)"),
    "P peer slow": _PEERS.replace("PEER", "time.sleep(10)"),
    "P nccl": "raise RuntimeError('NCCL error in: ProcessGroupNCCL.cpp:3353, remote process exited or there was a network error')",
    "P watchdog": "import os\nprint('[rank0]:[E ProcessGroupNCCL.cpp:684] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran for 600029 milliseconds before timing out.', flush=True)\nos.abort()",
    "P ecc": "raise RuntimeError('CUDA error: uncorrectable ECC error encountered')",
}


def message(name: str, run: int) -> tuple[int, str]:
    """Exit code and last words of a program."""
    source = PROGRAMS[name].replace("@", str(run))
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, f"{re.sub('[^a-z0-9]+', '_', name[2:].lower())}.py")
        argv = [sys.executable, str(script)]
        if source.startswith("$ "):
            argv = ["bash", "-c", source[2:]]
        elif source.startswith("torchrun 2:"):
            options = ["--nnodes", "1", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
            options += ["--rdzv-endpoint", "127.0.0.1:0"]
            argv = [sys.executable, "-m", "torch.distributed.run", *options, str(script)]
            source = source[len("torchrun 2:") :]
        if not source.startswith("$ "):
            script.write_text(source + "\n")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        for mine in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
            environment.pop(mine, None)
        done = subprocess.run(
            argv, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=240, check=False,
        )  # fmt: skip
        code = done.returncode if done.returncode >= 0 else 128 - done.returncode
        words = done.stdout.decode(errors="replace")
    for real, told in (
        (folder, "/home/ada"),
        (sys.prefix, "/venv"),
        (sys.base_prefix, "/usr"),
    ):
        words = words.replace(real, told)
    return code, _as_kubelet(words)


def _as_kubelet(words: str) -> str:
    """The last 80 lines, of which 2048 bytes."""
    with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
        lines = words.splitlines()
        file.writelines(f"2026-01-01T00:00:00.000000000Z stdout F {line}\n" for line in lines)
        file.flush()
        return last_lines(file.name)


def main() -> None:
    """Write the file."""
    wanted = [name for name in PROGRAMS if all(part in name for part in sys.argv[1:])]
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    with ThreadPoolExecutor(3) as pool:
        found = {name: [pool.submit(message, name, run) for run in (1, 2)] for name in wanted}
        for name, runs in found.items():
            known[name] = [future.result() for future in runs]
            print(name, flush=True)
    kept = {name: known[name] for name in PROGRAMS if name in known}
    FILE.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
