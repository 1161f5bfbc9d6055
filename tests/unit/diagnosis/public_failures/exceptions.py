"""Exceptions of the user's own code, and of libraries that it calls."""

from __future__ import annotations

from tests.unit.diagnosis.public_failures.row import PublicFailure, rank_1, ranks

ROWS = (
    rank_1("key in a helper", "import optim\noptim.build({})\n", (r"KeyError: 'lr'",),
           'config["lr"]', beside={"optim.py": 'def build(config):\n    return config["lr"]\n'}),
    rank_1("missing argument", "def train(model, data):\n    pass\ntrain(None)\n",
           (r"TypeError: train\(\) missing 1 required positional argument: 'data'",),
           "train(None)"),
    PublicFailure("none has no attribute", "model = dict().get('model')\nmodel.train()\n",
           (r"'NoneType' object has no attribute 'train'",), "model.train()"),
    PublicFailure("shapes of a layer", """\
import torch
model = torch.nn.Sequential(torch.nn.Linear(784, 10))
def step(images):
    return model(images)
step(torch.ones(64, 512))
""", (r"mat1 and mat2 shapes cannot be multiplied \(64x512 and 784x10\)",),
           "return model(images)"),
    PublicFailure("target out of bounds", """\
import torch
logits, labels = torch.ones(1, 2), torch.tensor([5])
loss = torch.nn.functional.cross_entropy(logits, labels)
""", (r"IndexError: Target 5 is out of bounds",), "loss = "),
    PublicFailure("dtypes of a layer", """\
import torch
model = torch.nn.Linear(4, 2)
out = model(torch.ones(1, 4, dtype=torch.float64))
""", (r"mat1 and mat2 must have the same dtype, but got Double and Float",), "out = model"),
    PublicFailure("backward twice", """\
import torch
w = torch.ones(2, requires_grad=True)
loss = (w * w).sum()
for step in range(2):
    loss.backward()
""", (r"Trying to backward through the graph a second time",), "loss.backward()"),
    PublicFailure("changed in place", """\
import torch
w = torch.ones(3, requires_grad=True)
y = torch.sigmoid(w)
y += 1
y.sum().backward()
""", (r"modified by an inplace operation",), "y.sum().backward()"),
    ranks("assertion amid a collective", 'if rank == 1:\n    assert x[0] < 0, "loss is nan"\n'
           "dist.all_reduce(x)\n", (r"AssertionError: loss is nan",), "assert x[0]"),
    ranks("unused parameters", """\
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.one(x)
net = torch.nn.parallel.DistributedDataParallel(Net())
for step in range(3):
    out = net(x)
    out.sum().backward()
""", (r"Expected to have finished reduction in the prior iteration",), "out = net(x)",
           (r"find_unused_parameters|train\.py, line 14",), who=""),
    PublicFailure("sample in a worker of the loader", """\
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        raise ValueError(f"sample {index} has no label")
for batch in DataLoader(Data(), num_workers=1):
    pass
""", (r"ValueError: sample 0 has no label", r"DataLoader worker process 0"), "raise ValueError"),
    PublicFailure("raised from another", """\
def read(config):
    try:
        return config["lr"]
    except KeyError as error:
        raise RuntimeError("the configuration is incomplete") from error
read({})
""", (r"RuntimeError: the configuration is incomplete", r"KeyError: 'lr'"), "raise RuntimeError"),
    PublicFailure("raised while handling another", """\
try:
    {}["batch"]
except KeyError:
    size = int("thirty-two")
""", (r"ValueError: invalid literal for int\(\) with base 10: 'thirty-two'",), "size = int"),
    PublicFailure("in a task group", """\
import asyncio
async def fetch(shard):
    raise ValueError(f"shard {shard} is empty")
async def main():
    async with asyncio.TaskGroup() as group:
        group.create_task(fetch(3))
asyncio.run(main())
""", (r"ValueError: shard 3 is empty",), "raise ValueError"),
    PublicFailure("recursion", "def depth(tree):\n    return depth(tree)\ndepth({})\n",
           (r"RecursionError: maximum recursion depth exceeded",), "return depth(tree)"),
    rank_1("syntax of a module", "import net\n", (r"SyntaxError: '\(' was never closed",),
           "layers = (", beside={"net.py": "\nlayers = (1, 2\ndef f():\n    pass\n"}),
    PublicFailure("indentation", "def train():\nreturn 1\n",
           (r"IndentationError: expected an indented block",), "return 1"),
    PublicFailure("in a spawned process", """\
import torch.multiprocessing as mp
def work(rank):
    raise ValueError(f"rank {rank} has no shard")
if __name__ == "__main__":
    mp.spawn(work, nprocs=1)
""", (r"ValueError: rank 0 has no shard",), "raise ValueError"),
    ranks("guard against nan", """\
loss = torch.tensor(float("nan") if rank == 1 else 1.0)
if not torch.isfinite(loss):
    raise FloatingPointError(f"loss is {loss.item()} at step 12")
dist.all_reduce(x)
""", (r"FloatingPointError: loss is nan at step 12",), "raise FloatingPointError"),
    PublicFailure("shapes of numpy", """\
import numpy as np
mean = np.zeros((3,))
image = np.zeros((224, 224, 4)) - mean
""", (r"could not be broadcast together with shapes \(224,224,4\) \(3,\)",), "image = "),
)  # fmt: skip
