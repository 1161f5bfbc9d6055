"""What the text of a Python script shows: the modules that it imports, and its launcher.

`Source.imports` has only what runs in any case: imports within functions, conditions and ``try``
may never be reached, or may fail on purpose.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence, Set

from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import TrainyardError

_TORCH_LIBRARIES = """
torch torchvision torchaudio torchtext lightning pytorch_lightning accelerate transformers
torchtitan timm ignite fairscale composer
"""
LAUNCHERS: Mapping[str, str] = {
    "colossalai": "colossalai",
    "deepspeed": "deepspeed",
    **dict.fromkeys(_TORCH_LIBRARIES.split(), "torchrun"),
}
"""Imported modules, and the launchers of scripts that import them; the first match counts."""
DISTRIBUTED, PLAIN = "torchrun", "plain"
_SINGLE_PROCESS_LIBRARIES = """
torch torchvision torchaudio numpy pandas scipy sklearn matplotlib PIL tqdm yaml tensorboard
tensorboardX torchmetrics trainyard
"""
_SINGLE_PROCESS_MODULES = sys.stdlib_module_names | {*_SINGLE_PROCESS_LIBRARIES.split()}
"""Modules that do not connect processes by themselves; any other module may."""
_DISTRIBUTED_WORDS = re.compile(
    rb"distributed|rank|world_?size|\bddp|fsdp|\bmpi|horovod", re.IGNORECASE
)
"""Words in scripts whose processes share the work."""
_JOINING = ("init_process_group", "init_device_mesh")
_RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")

USE_CPU = "ACCELERATE_USE_CPU"
"""Without it, on a machine without GPUs, accelerate does not use the group that it makes (1.15)."""
_ACCELERATE_MODULES = ("accelerate", "transformers")
_CPU_OPTIONS = re.compile(rb"use_cpu|no_cuda|\bcpu\s*=", re.IGNORECASE)


class SourceError(TrainyardError):
    """A script is no Python; the message has file and line."""


@dataclass(frozen=True, slots=True)
class Source:
    """What is known of a script. ``imports`` are top-level names of modules, in their order."""

    imports: tuple[str, ...]
    all_imports: frozenset[str]
    """Those, and imports in functions, conditions and ``try``."""
    changes_path: bool
    """Whether it changes ``sys.path``, so that it is not known where it finds modules."""
    may_be_distributed: bool = True
    """Whether a word in it may be about ranks."""
    may_use_cpus: bool = True
    """Whether an option in it may select CPUs."""
    reads_ranks: bool = False
    """Whether it joins a process group, or reads its rank from the environment."""
    can_do_without_ranks: bool = False
    """Whether it asks if the environment has its rank, as scripts do that also run alone."""

    @property
    def launcher(self) -> tuple[str, str]:
        """The launcher that it is written for, and the imported module that shows it, or ""."""
        for module, launcher in LAUNCHERS.items():
            if module in self.all_imports:
                return launcher, module
        return PLAIN, ""


def read(text: str | bytes, file: str) -> Source:
    """Parse a script; raises SourceError if it is no Python."""
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
    nodes = list(ast.walk(tree))
    walked = [node for node in nodes if isinstance(node, ast.stmt)]
    data = text if isinstance(text, bytes) else text.encode()
    return Source(
        top,
        frozenset(_imported(walked)),
        changes_path=any(map(_changes_path, nodes)),
        may_be_distributed=_DISTRIBUTED_WORDS.search(data) is not None,
        may_use_cpus=_CPU_OPTIONS.search(data) is not None,
        reads_ranks=any(map(_reads_ranks, nodes)),
        can_do_without_ranks=any(map(_asks_for_ranks, nodes)),
    )


def needs_ranks(sources: Sequence[Source]) -> bool:
    """Whether a script cannot run as one process that no launcher has started."""
    return any(s.reads_ranks for s in sources) and not any(s.can_do_without_ranks for s in sources)


def _reads_ranks(node: ast.AST) -> bool:
    """Whether it is ``init_process_group(…)`` or ``os.environ["RANK"]``."""
    if isinstance(node, ast.Call):
        return _last_name(node.func) in _JOINING
    return (
        isinstance(node, ast.Subscript)
        and _last_name(node.value) == "environ"
        and _is_rank(node.slice)
    )


def _asks_for_ranks(node: ast.AST) -> bool:
    """Whether it is ``"RANK" in os.environ``, ``os.getenv("RANK")``, or ``os.environ.get("RANK",
    -1)``; 0 or 1 in the place of -1 is no question."""
    if isinstance(node, ast.Compare):
        return _is_rank(node.left) and any(_last_name(n) == "environ" for n in node.comparators)
    if not (isinstance(node, ast.Call) and node.args and _is_rank(node.args[0])):
        return False
    name = _last_name(node.func)
    if name == "get" and isinstance(node.func, ast.Attribute):
        name += " " + _last_name(node.func.value)
    if name not in ("getenv", "get environ"):
        return False
    default = ast.unparse(node.args[1]).strip("'\"") if len(node.args) > 1 else "None"
    return default in ("None", "", "-1")


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _is_rank(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in _RANK_VARIABLES


def is_single_process(sources: Sequence[Source], own: Set[str]) -> bool:
    """Whether each process of a script would do all the work: it uses torch, and nothing in it or
    its `own` modules connects processes. False if that cannot be known."""
    names = frozenset[str]().union(*(source.all_imports for source in sources))
    is_known = names <= _SINGLE_PROCESS_MODULES | own and not any(s.changes_path for s in sources)
    return is_known and "torch" in names and not any(s.may_be_distributed for s in sources)


def accelerate_module(sources: Sequence[Source]) -> str:
    """The module by which a script uses accelerate, which ignores CPUs unless an option selects
    them; "" if it does not use it, has such an option, or joins a process group by itself."""
    if any(source.reads_ranks for source in sources):
        return ""
    found = next((m for m in _ACCELERATE_MODULES if any(m in s.all_imports for s in sources)), "")
    return "" if any(source.may_use_cpus for source in sources) else found


def _imported(nodes: list[ast.stmt]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.split(".")[0]


def _changes_path(node: ast.AST) -> bool:
    """Whether it is ``sys.path`` or ``site.addsitedir``."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and ((node.value.id, node.attr) in (("sys", "path"), ("site", "addsitedir")))
    )
