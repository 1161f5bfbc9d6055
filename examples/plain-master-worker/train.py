"""Data-parallel training on a master and workers that are started plainly, without torchrun.

The controller sets MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, which is all that
`init_process_group` needs. Gradients are averaged by hand to show what DDP does.
"""

import os
import socket

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn


def average_gradients(model: nn.Module, world: int) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    print(
        f"rank {rank} of {world} on {socket.gethostname()}, "
        f"master {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
        flush=True,
    )
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16.0, dtype=torch.float32)
    labels = torch.tensor(labels)
    is_test = torch.arange(len(labels)) % 5 == 0
    mine = torch.nonzero(~is_test).flatten()[rank::world]

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(100):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[mine]), labels[mine])
        loss.backward()
        average_gradients(model, world)
        optimizer.step()
    if rank == 0:
        right = model(images[is_test]).argmax(1) == labels[is_test]
        print(f"test accuracy {right.float().mean().item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
