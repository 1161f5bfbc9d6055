"""What the text of a Python script says: which modules it imports, and how it wants to be launched.

Only what runs in any case counts: imports within functions, conditions and ``try`` may never be
reached, or may be meant to fail.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence, Set

from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import TrainyardError

_OF_TORCH = """
torch torchvision torchaudio torchtext lightning pytorch_lightning accelerate transformers
torchtitan timm ignite fairscale composer
"""
LAUNCHERS: Mapping[str, str] = {
    "colossalai": "colossalai",
    "deepspeed": "deepspeed",
    **dict.fromkeys(_OF_TORCH.split(), "torchrun"),
}
"""Module that a script imports, to the launcher that it is written for; the first one counts."""
DISTRIBUTED, ALONE = "torchrun", "plain"
_OF_ITS_OWN = """
torch torchvision torchaudio numpy pandas scipy sklearn matplotlib PIL tqdm yaml tensorboard
tensorboardX torchmetrics trainyard
"""
_WITHOUT_PEERS = sys.stdlib_module_names | {*_OF_ITS_OWN.split()}
"""Modules that bring no ranks together by themselves; of any other that is not known."""
_MEETING = re.compile(rb"distributed|rank|world_?size|\bddp|fsdp|\bmpi|horovod", re.IGNORECASE)
"""What a script says somewhere that has several processes share the work."""

USE_CPU = "ACCELERATE_USE_CPU"
"""Without it, on a machine without GPUs, accelerate does not use the group that it makes (1.15)."""
_BY_ACCELERATE = ("accelerate", "transformers")
_ON_CPUS = re.compile(rb"use_cpu|no_cuda|cpu\s*=\s*True", re.IGNORECASE)


class SourceError(TrainyardError):
    """A script is no Python; the text says where."""


@dataclass(frozen=True, slots=True)
class Source:
    """What is known of a script. ``imports`` are top-level names of modules, in their order."""

    imports: tuple[str, ...]
    everywhere: frozenset[str]
    """Those and what is imported in functions, conditions and ``try``."""
    changes_path: bool
    """It touches ``sys.path``, so that where modules are found is not known ahead."""
    says_of_others: bool = True
    """Something in it may be about ranks, or other processes."""
    says_of_cpus: bool = True
    """It may say that it trains on CPUs."""

    @property
    def launcher(self) -> tuple[str, str]:
        """The launcher that it is written for, and the module that says so ("" for none)."""
        for module, launcher in LAUNCHERS.items():
            if module in self.everywhere:
                return launcher, module
        return ALONE, ""


def read(text: str | bytes, file: str) -> Source:
    """Look through a script; raises SourceError, with the line, where it is no Python."""
    try:
        tree = ast.parse(text, file)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        what = error.msg if isinstance(error, SyntaxError) else str(error)
        shown = (error.text or "").strip() if isinstance(error, SyntaxError) else ""
        raise SourceError(
            f"{file}{line}: SyntaxError: {what}" + (f"\n    {shown}" if shown else "")
        ) from None
    top = tuple(dict.fromkeys(_imported(tree.body)))
    walked = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    data = text if isinstance(text, bytes) else text.encode()
    return Source(
        top,
        frozenset(_imported(walked)),
        changes_path=any(map(_is_path, ast.walk(tree))),
        says_of_others=_MEETING.search(data) is not None,
        says_of_cpus=_ON_CPUS.search(data) is not None,
    )


def is_alone(sources: Sequence[Source], own: Set[str]) -> bool:
    """Whether each process of a script would do all the work: with torch, and nothing in it or its
    `own` modules by which ranks could meet. False where that cannot be known."""
    names = frozenset[str]().union(*(source.everywhere for source in sources))
    is_known = names <= _WITHOUT_PEERS | own and not any(s.changes_path for s in sources)
    return is_known and "torch" in names and not any(s.says_of_others for s in sources)


def is_by_accelerate(sources: Sequence[Source]) -> str:
    """The module by which accelerate is to bring the processes of a script together, which says
    nothing of CPUs; "" of any other."""
    found = next((m for m in _BY_ACCELERATE if any(m in s.everywhere for s in sources)), "")
    return "" if any(source.says_of_cpus for source in sources) else found


def _imported(nodes: list[ast.stmt]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.split(".")[0]


def _is_path(node: ast.AST) -> bool:
    """``sys.path``, or something of ``site``."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and ((node.value.id, node.attr) in (("sys", "path"), ("site", "addsitedir")))
    )
