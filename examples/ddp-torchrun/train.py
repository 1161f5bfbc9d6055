"""Train a small network on scikit-learn's handwritten digits, data-parallel under torchrun.

Every rank sees its share of each epoch; rank 0 prints the test accuracy and writes TensorBoard
events. The data comes inside scikit-learn: nothing is downloaded.
"""

import argparse
import os
import socket

import torch
import torch.distributed as dist
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
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--log-dir", help="where rank 0 writes TensorBoard events")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world} on {socket.gethostname()}", flush=True)
    torch.manual_seed(0)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))

    train, test = load()
    sampler = DistributedSampler(train, seed=0)
    batches = DataLoader(train, batch_size=32, sampler=sampler)
    layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    lossof = nn.CrossEntropyLoss()

    writer = None
    if rank == 0 and options.log_dir:
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(options.log_dir)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for images, labels in batches:
            optimizer.zero_grad()
            loss = lossof(model(images), labels)
            loss.backward()
            optimizer.step()
        if writer is not None:
            writer.add_scalar("loss", loss.item(), epoch)
            writer.add_scalar("accuracy", accuracy(layers, test), epoch)
        if rank == 0 and epoch % 5 == 4:
            print(f"epoch {epoch + 1}: loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"test accuracy {accuracy(layers, test):.4f}", flush=True)
    if writer is not None:
        writer.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
