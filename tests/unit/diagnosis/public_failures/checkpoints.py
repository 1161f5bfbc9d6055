"""Checkpoints that are not there, not whole or of another model, and where they are written to."""

# ruff: noqa: E501

from __future__ import annotations

from tests.unit.diagnosis.public_failures.limits import volume
from tests.unit.diagnosis.public_failures.row import NOT_THE_CODE, PublicFailure

_NET = "import torch\nnet = torch.nn.Linear(4, 2)\n"

ROWS = (
    PublicFailure("a checkpoint of another size", _NET
           + 'torch.save(torch.nn.Linear(4, 3).state_dict(), "ckpt.pt")\n'
           'net.load_state_dict(torch.load("ckpt.pt"))\n',
           (r"size mismatch for weight",), "net.load_state_dict", (r"train\.py, line 4|checkpoint",)),
    PublicFailure("a checkpoint of a wrapped model", _NET
           + 'state = {f"module.{key}": value for key, value in net.state_dict().items()}\n'
           "net.load_state_dict(state)\n", (r"Missing key\(s\) in state_dict", r"module\."),
           "net.load_state_dict", (r"train\.py, line 4|module\.",)),
    PublicFailure("a checkpoint that is not there",
           'import torch\nstate = torch.load("/ckpt/last.pt")\n',
           (r"No such file or directory: '/ckpt/last\.pt'",), "state = torch",
           (r"path|mount|--volume",), (NOT_THE_CODE,)),
    PublicFailure("a checkpoint that was cut off", _NET + """\
torch.save(net.state_dict(), "ckpt.pt")
with open("ckpt.pt", "r+b") as file:
    file.truncate(700)
state = torch.load("ckpt.pt")
""", (r"failed finding central directory|PytorchStreamReader", r"whole|cut off|damaged|incomplete"),
           "state = torch", (r"earlier|again|another",), (NOT_THE_CODE,)),
    PublicFailure("an empty checkpoint", 'import pickle\nstate = pickle.load(open("ckpt.pkl", "rb"))\n',
           (r"EOFError: Ran out of input", r"empty|whole|cut off|damaged|incomplete"), "state = ",
           (r"earlier|again|another",), (NOT_THE_CODE,), beside={"ckpt.pkl": ""}),
    PublicFailure("a checkpoint with other objects", """\
import torch
class Config:
    pass
torch.save({"config": Config()}, "ckpt.pt")
state = torch.load("ckpt.pt")
""", (r"Weights only load failed", r"other objects|nothing but weights"), "state = torch",
           (r"weights_only=False|add_safe_globals",), (NOT_THE_CODE,)),
    PublicFailure("a checkpoint of a GPU", _NET + """\
torch.save(net.state_dict(), "ckpt.pt")
state = torch.load("ckpt.pt", map_location="cuda")
""", (r"deserialize object on a CUDA device", r"no.* where it runs|no GPU"), "state = torch",
           (r"map_location='cpu'|GPU",), (NOT_THE_CODE,)),
    PublicFailure("an optimizer of another model", _NET + """\
old = torch.optim.Adam(torch.nn.Sequential(net, torch.nn.Linear(2, 2)).parameters())
new = torch.optim.Adam(net.parameters())
new.load_state_dict(old.state_dict())
""", (r"parameter group that doesn't match the size of optimizer's group",),
           "new.load_state_dict", (r"train\.py, line 5|checkpoint",)),
    PublicFailure("a checkpoint for which there is no room",
           'import torch\nweights = torch.ones(4 << 20)\ntorch.save(weights, "/ckpt/last.pt")\n',
           (r"/ckpt|volume small|full",), "torch.save", (r"room|sizeLimit",), (NOT_THE_CODE,),
           **volume("/ckpt")),
    PublicFailure("a folder for checkpoints that is not there",
           'import torch\ntorch.save(torch.ones(1), "/ckpt/run-1/last.pt")\n',
           (r"Parent directory /ckpt/run-1 does not exist",), "torch.save",
           (r"mkdir|makedirs|path|create|mount",), (NOT_THE_CODE,)),
)  # fmt: skip
