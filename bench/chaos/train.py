"""Digits, data-parallel, for as long as is wished: what is trained goes on where it was.

Every epoch takes the same time, and ends with a checkpoint. At the end rank 0 writes the accuracy.
`--alone`: each replica trains by itself.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.parallel import DistributedDataParallel

try:
    from trainyard import report
except ImportError:

    def report(**_: object) -> None:
        """Nobody to tell."""


def save(path: str, what: object) -> None:
    torch.save(what, f"{path}.new")
    os.replace(f"{path}.new", path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--pace", type=float, default=0.5, help="seconds of an epoch")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--alone", action="store_true")
    options, _ = parser.parse_known_args()  # deepspeed adds --local_rank
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images / 16.0, labels, test_size=0.2, random_state=0)
    x, test_x, y, test_y = (torch.tensor(part) for part in parts)
    model: nn.Module = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).double()
    rank, world = 0, 1
    if not options.alone:
        dist.init_process_group("gloo")
        rank, world = dist.get_rank(), dist.get_world_size()
    layers, model = model, model if options.alone else DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    folder = (
        os.path.join(options.folder, os.environ.get("HOSTNAME", "")[-1:])
        if options.alone
        else options.folder
    )
    os.makedirs(folder, exist_ok=True)
    path, epoch = os.path.join(folder, "checkpoint"), 0
    if os.path.exists(path):
        kept = torch.load(path)
        epoch = kept["epoch"]
        layers.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
    print(f"rank {rank} of {world} goes on with epoch {epoch}", flush=True)
    end = time.monotonic()
    while epoch < options.epochs:
        end = max(end, time.monotonic() - options.pace) + options.pace
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(512):
            mine = batch[rank::world]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[mine]), y[mine])
            loss.backward()
            optimizer.step()
        epoch += 1
        if rank == 0:
            kept = {"model": layers.state_dict(), "optimizer": optimizer.state_dict()}
            save(path, {"epoch": epoch, **kept})
        report(step=epoch, total=options.epochs, checkpoint=path, loss=loss.item())
        time.sleep(max(end - time.monotonic(), 0))
    if rank == 0:
        right = (layers(test_x).argmax(1) == test_y).double().mean().item()
        with open(os.path.join(folder, "accuracy"), "w") as file:
            file.write(f"{right:.4f}")
    if not options.alone:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
