"""The source of one function or class, and the names that it needs."""

from __future__ import annotations

import ast
import inspect
import linecache
import symtable
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from trainyard.api.errors import CaptureError

MAIN = "__main__"
SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""Flags of code that a call only begins."""
_FUTURES = 0x1FF0000
"""Flags of code that `from __future__ import …` sets."""
_AT_ONCE = ("listcomp", "setcomp", "dictcomp", "genexpr", "lambda")
_CELLS = ("<ipython-input-", "<python-input-", "/ipykernel_")
"""In the names under which notebooks and interactive interpreters keep what was typed."""
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign


@dataclass
class Definition:
    """A function or class, as it is made again."""

    module: str
    qualname: str
    file: str
    line: int
    text: str
    """Whole lines, indented as they were."""
    flags: int
    is_function: bool
    is_bare: bool
    """Without its decorators, which made something else of it."""
    needs: frozenset[str] = frozenset()
    """Globals that it names."""
    at_once: frozenset[str] = frozenset()
    """Those of them that are looked up while it is made."""
    cells: dict[str, Any] = field(default_factory=dict)
    """The values of its free variables."""
    defaults: tuple[Any, Any] = (None, None)
    """Of its arguments: by position and by keyword."""
    names: list[str] = field(default_factory=list)
    """The globals that are it."""

    def describe(self) -> dict[str, Any]:
        """As `payloads/function_call.py` reads it."""
        plain = ("module", "qualname", "file", "line", "text", "flags", "is_function", "is_bare")
        found = {name: getattr(self, name) for name in plain}
        return {**found, "names": self.names, "free": sorted(self.cells)}


def comes_by_source(value: object) -> bool:
    """Whether this is a function or class that cannot be imported by its name elsewhere."""
    name = getattr(value, "__qualname__", None)
    is_one = isinstance(value, type | FunctionType) or hasattr(value, "__wrapped__")
    if not is_one or not isinstance(name, str):
        return False
    return getattr(value, "__module__", None) == MAIN or "<locals>" in name or name == "<lambda>"


def unwrapped(function: Any) -> Any:
    """What decorators that tell so have wrapped."""
    return inspect.unwrap(function)


def names_of(obj: Any) -> Mapping[str, Any]:
    """The globals in which it was defined."""
    return vars(sys.modules[obj.__module__]) if obj.__module__ in sys.modules else {}


def of(obj: Any) -> Definition:
    """The definition of a function or class; raises CaptureError where its source is not to be
    had."""
    inner = unwrapped(obj)
    functions = list(_functions_of(inner)) if isinstance(inner, type) else [inner]
    file, lines, node = _find(inner, functions)
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(each.lineno for each in decorators)])
    is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    found = Definition(
        module=str(obj.__module__),
        qualname=str(obj.__qualname__),
        file=file,
        line=first,
        text="".join(lines[first - 1 : node.end_lineno]),
        flags=next((f.__code__.co_flags & _FUTURES for f in functions), 0),
        is_function=is_function,
        is_bare=is_function and inner is obj,
        cells=_cells(functions, getattr(node, "name", "")),
    )
    if is_function:
        found.defaults = (inner.__defaults__, inner.__kwdefaults__)
    found.needs, found.at_once = _names(node, found)
    return found


def _functions_of(cls: type) -> Iterator[FunctionType]:
    """Those that were written in the body of a class: not the one by which Python 3.14 makes its
    annotations (https://peps.python.org/pep-0749/), which nobody wrote and which holds the body."""
    for name, value in vars(cls).items():
        if name in ("__annotate__", "__annotate_func__"):
            continue
        parts = (value, getattr(value, "__func__", None), getattr(value, "fget", None))
        for each in parts:
            each = unwrapped(each) if callable(each) else each
            if isinstance(each, FunctionType) and each.__qualname__.startswith(cls.__qualname__):
                yield each


def _cells(functions: list[FunctionType], own: str) -> dict[str, Any]:
    found = {}
    for function in functions:
        pairs = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for name, cell in pairs:
            if name not in (own, "__class__"):
                try:
                    found[name] = cell.cell_contents
                except ValueError:  # it is assigned later, or never
                    continue
    return found


# Where it was written.


def _find(obj: Any, functions: list[FunctionType]) -> tuple[str, list[str], _Definition]:
    """File, its lines, and the definition in it."""
    for file in dict.fromkeys(_files(obj, functions)):
        lines = linecache.getlines(file, dict(names_of(obj)))
        try:
            tree = ast.parse("".join(lines), file)
        except (SyntaxError, ValueError):
            continue
        matching = [node for name, node in _definitions(tree, "") if _is(node, name, obj)]
        if matching:
            return file, lines, matching[-1]
    what = "a lambda" if obj.__qualname__.endswith("<lambda>") else obj.__qualname__
    raise CaptureError(
        f"the source of {what} is not to be had, by which it would be carried to the replicas: "
        "define it in a file or in a cell of a notebook, with def or class; or have the function "
        "that is run define it"
    )


def _files(obj: Any, functions: list[FunctionType]) -> Iterator[str]:
    yield from (function.__code__.co_filename for function in functions)
    if isinstance(obj, type):  # one without a function of its own does not know
        if file := getattr(sys.modules.get(obj.__module__), "__file__", None):
            yield file
        typed = [name for name in linecache.cache if any(mark in name for mark in _CELLS)]
        yield from reversed(typed)


def _definitions(node: ast.AST, within: str) -> Iterator[tuple[str, _Definition]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{within}{child.name}", child
            yield from _definitions(child, f"{within}{child.name}.<locals>.")
        elif isinstance(child, ast.ClassDef):
            yield f"{within}{child.name}", child
            yield from _definitions(child, f"{within}{child.name}.")
        elif isinstance(child, ast.Assign):
            target = child.targets[0]
            yield f"{within}{target.id}" if isinstance(target, ast.Name) else "", child
        elif not isinstance(child, ast.expr):
            yield from _definitions(child, within)


def _is(node: _Definition, name: str, obj: Any) -> bool:
    if isinstance(obj, type):
        return bool(name == obj.__qualname__) and not isinstance(node, ast.FunctionDef)
    code = obj.__code__
    if isinstance(node, ast.Assign):
        is_alone = len(node.targets) == 1 and isinstance(node.value, ast.Lambda)
        return is_alone and bool(name) and node.value.lineno == code.co_firstlineno
    if isinstance(node, ast.ClassDef) or node.name != code.co_name:
        return False
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    return bool(first == code.co_firstlineno)


# Which names it needs.


class _Reduced(ast.NodeTransformer):
    """Without what is not carried: annotations of functions, and defaults that are no constants."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)


def _names(node: _Definition, found: Definition) -> tuple[frozenset[str], frozenset[str]]:
    """The globals that it needs, and those that are needed while it is made."""
    tree = ast.parse(ast.unparse(node))
    copy = tree.body[0]
    if isinstance(copy, ast.FunctionDef):
        if found.is_bare:
            copy.decorator_list = []
        places: tuple[list[Any], list[Any]] = (copy.args.defaults, copy.args.kw_defaults)
        for place in places:
            place[:] = [each and ast.Constant(None) for each in place]
        tree = ast.Module([_Reduced().visit(copy)], [])
    top = symtable.symtable(ast.unparse(tree), found.file, "exec")
    needs = set(_globals(top, at_once=False))
    own = {getattr(node, "name", "")} if not isinstance(node, ast.Assign) else set()
    at_once = set(_globals(top, at_once=True)) - own
    free = set(found.cells)
    return frozenset(needs - free), frozenset(at_once - free)


def _globals(table: symtable.SymbolTable, *, at_once: bool) -> Iterator[str]:
    is_top = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (is_top or symbol.is_global()):
            yield symbol.get_name()
    for child in table.get_children():
        is_made_now = child.get_type() == "class" or child.get_name() in _AT_ONCE
        if not at_once or is_made_now:
            yield from _globals(child, at_once=at_once)
