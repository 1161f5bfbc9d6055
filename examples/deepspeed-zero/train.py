"""Train a small transformer, character by character, with DeepSpeed's ZeRO stage 2.

Every rank holds a part of the gradients and of the optimizer's state. The text beside this file is
in the public domain (the Gettysburg Address and two preambles); nothing is downloaded. Rank 0
prints the loss on a held-out part of the text before and after. Runs on CPUs.
"""

import argparse
import json
import socket
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

HERE = Path(__file__).parent
CONTEXT = 48


class Transformer(nn.Module):
    """Predicts the next character from up to CONTEXT characters."""

    def __init__(self, characters: int, width: int = 96, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.characters = nn.Embedding(characters, width)
        self.places = nn.Embedding(CONTEXT, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.scores = nn.Linear(width, characters)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        embedded = self.characters(text) + self.places.weight
        return self.scores(self.layers(embedded, mask=self.mask, is_causal=True))


def loss_of(model: nn.Module, windows: torch.Tensor) -> torch.Tensor:
    scores = model(windows[:, :-1])
    return nn.functional.cross_entropy(scores.flatten(0, 1), windows[:, 1:].flatten())


def load() -> tuple[torch.Tensor, torch.Tensor, int]:
    """Windows of CONTEXT + 1 characters to train with and to test with, and their alphabet."""
    text = (HERE / "text.txt").read_text(encoding="utf-8")
    alphabet = sorted(set(text))
    codes = torch.tensor([alphabet.index(character) for character in text])
    cut = len(codes) * 9 // 10
    train, test = (part.unfold(0, CONTEXT + 1, 1) for part in (codes[:cut], codes[cut:]))
    return train, test, len(alphabet)


def held_out_loss(model: nn.Module, test: torch.Tensor) -> float:
    with torch.no_grad():
        return loss_of(model, test).item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, help="passed by deepspeed")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--config", default=str(HERE / "deepspeed.json"))
    options = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    train, test, characters = load()
    model = Transformer(characters)
    # DeepSpeed's own optimizers, and its reduction through shared memory on CPUs, would first be
    # compiled for a minute.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    config = json.loads(Path(options.config).read_text(encoding="utf-8"))
    deepspeed.init_distributed(dist_backend="gloo")
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world} on {socket.gethostname()}", flush=True)
    if rank == 0:
        print(f"held-out loss before: {held_out_loss(engine.module, test):.4f}", flush=True)

    random = torch.Generator().manual_seed(rank)
    size = engine.train_micro_batch_size_per_gpu()
    for step in range(options.steps):
        picked = torch.randint(len(train), (size,), generator=random)
        loss = loss_of(engine, train[picked])
        engine.backward(loss)
        engine.step()
        if rank == 0 and step % 25 == 24:
            print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"held-out loss after: {held_out_loss(engine.module, test):.4f}", flush=True)
    dist.barrier()
    engine.destroy()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
