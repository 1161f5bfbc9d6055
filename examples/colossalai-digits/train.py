"""Train a small network on scikit-learn's handwritten digits, launched by ColossalAI.

The data comes inside scikit-learn: nothing is downloaded. Rank 0 prints the test accuracy before
and after. Runs on CPUs, and with nothing of ColossalAI that needs a GPU.
"""

import argparse
import socket

import colossalai
import torch
import torch.distributed as dist
from colossalai.cluster import DistCoordinator
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def load() -> tuple[TensorDataset, TensorDataset]:
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images / 16.0, labels, test_size=0.2, random_state=0, stratify=labels)
    train_x, test_x, train_y, test_y = parts
    return (
        TensorDataset(torch.tensor(train_x, dtype=torch.float32), torch.tensor(train_y)),
        TensorDataset(torch.tensor(test_x, dtype=torch.float32), torch.tensor(test_y)),
    )


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    images, labels = data.tensors
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()

    torch.set_num_threads(1)
    colossalai.launch_from_torch(backend="gloo", seed=0, verbose=False)
    coordinator = DistCoordinator()
    print(
        f"rank {coordinator.rank} of {coordinator.world_size} on {socket.gethostname()}",
        flush=True,
    )
    train, test = load()
    sampler = DistributedSampler(train, seed=0)
    batches = DataLoader(train, batch_size=32, sampler=sampler)
    layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    lossof = nn.CrossEntropyLoss()

    coordinator.print_on_master(f"test accuracy before: {accuracy(layers, test):.4f}")
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for images, labels in batches:
            optimizer.zero_grad()
            loss = lossof(model(images), labels)
            loss.backward()
            optimizer.step()
        coordinator.print_on_master(f"epoch {epoch + 1}: loss {loss.item():.4f}")
    coordinator.print_on_master(f"test accuracy after: {accuracy(layers, test):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
