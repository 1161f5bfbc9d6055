"""One parameter server and four workers over torch.distributed.rpc.

Rank 0 (the replica type `ps`, first in the manifest) holds the parameters; the workers fetch
them, compute gradients on their share of the digits, and push them back without waiting for each
other.
"""

import os
import socket
import threading

import torch
import torch.distributed.rpc as rpc
from sklearn.datasets import load_digits
from torch import nn

STEPS = 60
SERVER = "ps"


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


class ParameterServer:
    def __init__(self) -> None:
        self.model = network()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        self.lock = threading.Lock()

    def parameters(self) -> list[torch.Tensor]:
        with self.lock:
            return [parameter.detach().clone() for parameter in self.model.parameters()]

    def push(self, gradients: list[torch.Tensor]) -> None:
        with self.lock:
            for parameter, gradient in zip(self.model.parameters(), gradients, strict=True):
                parameter.grad = gradient
            self.optimizer.step()


server = ParameterServer()


def fetch() -> list[torch.Tensor]:
    return server.parameters()


def push(gradients: list[torch.Tensor]) -> None:
    server.push(gradients)


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images / 16.0, dtype=torch.float32), torch.tensor(labels)


def work(rank: int, workers: int) -> None:
    images, labels = digits()
    train = torch.nonzero(torch.arange(len(labels)) % 5 != 0).flatten()
    mine = train[rank - 1 :: workers]
    model = network()
    for _ in range(STEPS):
        for parameter, value in zip(model.parameters(), rpc.rpc_sync(SERVER, fetch), strict=True):
            parameter.data = value
        model.zero_grad()
        nn.functional.cross_entropy(model(images[mine]), labels[mine]).backward()
        rpc.rpc_sync(SERVER, push, args=([p.grad for p in model.parameters()],))


def main() -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    name = SERVER if rank == 0 else f"worker{rank}"
    print(f"{name} is rank {rank} of {world} on {socket.gethostname()}", flush=True)
    torch.set_num_threads(1)
    rpc.init_rpc(name, rank=rank, world_size=world)
    if rank:
        work(rank, world - 1)
    rpc.shutdown()  # waits until every rank is here
    if rank == 0:
        images, labels = digits()
        test = torch.arange(len(labels)) % 5 == 0
        right = server.model(images[test]).argmax(1) == labels[test]
        print(f"test accuracy {right.float().mean().item():.4f}", flush=True)


if __name__ == "__main__":
    main()
