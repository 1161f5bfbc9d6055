"""What the text of a Python script shows: the modules that it imports, and its launcher.

`Source.imports` has only what runs in any case: imports within functions, conditions and ``try``
may never be reached, or may fail on purpose.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

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
DISTRIBUTED, PLAIN, MPI = "torchrun", "plain", "mpi"
_JOINING = ("init_process_group", "init_device_mesh")
_SPAWNING, _MULTIPROCESSING = ("spawn", "start_processes"), ("mp", "multiprocessing")
_RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")


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
    reads_ranks: bool = False
    """Whether it joins a process group, or reads its rank from the environment."""
    can_do_without_ranks: bool = False
    """Whether it asks if the environment has its rank, as scripts do that also run alone."""
    spawns: bool = False
    """Whether it starts its processes itself, by torch.multiprocessing, and gives them ranks."""

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
    return Source(
        top,
        frozenset(_imported(walked)),
        changes_path=any(map(_changes_path, nodes)),
        reads_ranks=any(map(_reads_ranks, nodes)),
        can_do_without_ranks=any(map(_asks_for_ranks, nodes)),
        spawns=any(map(_spawns, nodes)) and not any(map(_reads_rank_variable, nodes)),
    )


def needs_ranks(sources: Sequence[Source]) -> bool:
    """Whether a script cannot run as one process that no launcher has started."""
    return any(s.reads_ranks for s in sources) and not any(s.can_do_without_ranks for s in sources)


def _reads_ranks(node: ast.AST) -> bool:
    """Whether it is ``init_process_group(…)`` or ``os.environ["RANK"]``."""
    if isinstance(node, ast.Call):
        return _last_name(node.func) in _JOINING
    return _reads_rank_variable(node)


def _spawns(node: ast.AST) -> bool:
    """Whether it is ``mp.spawn(…)`` or ``torch.multiprocessing.start_processes(…)``."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    return node.func.attr in _SPAWNING and _last_name(node.func.value) in _MULTIPROCESSING


def _reads_rank_variable(node: ast.AST) -> bool:
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
