"""What is around the program is not as it needs it; the program is right."""

from __future__ import annotations

from tests.unit.diagnosis.public_failures.row import NOT_THE_CODE, PublicFailure, rank_1

_FAKES = {"env": [{"name": "PYTHONPATH", "value": "site-packages"}]}
"""Packages that are not installed here stand in a folder with the name that such ones are in."""


def _raises(name: str, package: str, error: str, *rest: object, **more: object) -> PublicFailure:
    """The import of a package fails by these words, which it is known for."""
    known = {"never": (NOT_THE_CODE,), "container": _FAKES, **more}
    files = {f"site-packages/{package}/__init__.py": error}
    return PublicFailure(name, f"import {package}\n", *rest, beside=files, **known)  # type: ignore[arg-type]


ROWS = (
    rank_1("a package that is not installed", "import wandb\n", (r"wandb is not there",),
           "import wandb", (r"install",), (NOT_THE_CODE,)),
    PublicFailure("a module that is not beside the script", "from nets_of_mine import Net\n",
           (r"nets_of_mine is not there",), "from nets_of_mine", (r"beside the script|PYTHONPATH",),
           (NOT_THE_CODE,)),
    PublicFailure("a module that is not in one's own package", "from models.resnet import Net\n",
           (r"models has no module resnet|models\.resnet",), "from models.resnet",
           (r"correct the import|file is missing",), (r"pip install models",),
           beside={"models/__init__.py": ""}),
    _raises("an optional package, with the command", "trl",
           'raise ImportError("TRL requires the PEFT library but it was not found in your '
           'environment. You can install it with pip: `pip install peft`")\n',
           (r"requires the PEFT library",), "import trl", (r"pip install peft\b",)),
    _raises("a version of a package, with the command", "transformers",
           'raise ImportError("Using the `Trainer` with `PyTorch` requires `accelerate>=1.1.0`: '
           "Please run `pip install transformers[torch]` or `pip install 'accelerate>=1.1.0'`\")\n",
           (r"requires `accelerate>=1\.1\.0`",), "import transformers",
           (r"pip install (?:transformers\[torch\]|'accelerate)",)),
    _raises("torchvision of another torch", "torchvision", """\
import torch
@torch.library.register_fake("torchvision::nms")
def meta_nms(dets, scores, iou_threshold):
    pass
""", (r"operator torchvision::nms does not exist", r"torch and torchvision do not fit"),
           "import torchvision", (r"install .*together|pip install torch torchvision",)),
    _raises("an extension of another torch", "flash_attn",
           'raise ImportError("/opt/env/lib/python3.11/site-packages/flash_attn_2_cuda.cpython-311'
           '-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda9SetDeviceEi")\n',
           (r"undefined symbol", r"torch and flash_attn\w* do not fit"), "import flash_attn",
           (r"install",), never=(NOT_THE_CODE, r"pip install torch flash_attn_2")),
    _raises("built for a newer glibc", "bitsandbytes",
           "raise ImportError(\"/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found "
           '(required by /opt/env/lib/python3.11/site-packages/bitsandbytes/libbnb.so)")\n',
           (r"GLIBC_2\.38", r"newer system"), "import bitsandbytes", (r"image|source",)),
    PublicFailure("a library of CUDA that is not there",
           'import ctypes\nctypes.CDLL("libcudart.so.12")\n',
           (r"libcudart\.so\.12", r"not there"), "ctypes.CDLL", (r"install|image|LD_LIBRARY_PATH",),
           (NOT_THE_CODE,)),
    _raises("a library of the system that is not there", "cv2",
           'raise ImportError("libGL.so.1: cannot open shared object file: '
           'No such file or directory")\n',
           (r"libGL\.so\.1", r"not there"), "import cv2", (r"install",)),
    _raises("built for another NumPy", "pandas",
           'raise ValueError("numpy.dtype size changed, may indicate binary incompatibility. '
           'Expected 96 from C header, got 88 from PyObject")\n',
           (r"numpy\.dtype size changed", r"another NumPy"), "import pandas", (r"numpy|NumPy",)),
    PublicFailure("syntax of a newer Python", 'row = {"a": 1}\nprint(f"{row["a"]}")\n',
           (r"SyntaxError",), "print(f", (r"Python 3\.12|newer Python",)),
    PublicFailure("a name of a newer Python", "from typing import override\n",
           (r"cannot import name 'override' from 'typing'",), "from typing",
           (r"Python 3\.12|newer Python|other Python",), (r"hides the package",)),
    _raises("a package for an older Python", "attrdict", "from collections import Mapping\n",
           (r"cannot import name 'Mapping' from 'collections'",), "import attrdict",
           (r"install .*version|newer version",)),
    PublicFailure("no GPU", 'import torch\nx = torch.ones(3)\nx = x.to("cuda")\n',
           (r"CUDA", r"no GPU"), 'x = x.to("cuda")', (r"nvidia\.com/gpu|--gpus", r"CPU"),
           (NOT_THE_CODE,)),
)  # fmt: skip
