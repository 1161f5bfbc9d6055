"""What the text of a script says: its imports, and the launcher that it is written for."""

from __future__ import annotations

import pytest

from trainyard.api.scripts.python_source import SourceError, read


def test_imports_at_the_top_are_those_that_run_in_any_case() -> None:
    source = read(
        "import a, b.c as d\nfrom e.f import g\nfrom . import near\nfrom .h import i\n"
        "try:\n    import j\nexcept ImportError:\n    j = None\n"
        "if x:\n    import k\ndef f():\n    import l\n",
        "x.py",
    )
    assert source.imports == ("a", "b", "e")
    assert source.all_imports == {*"abejkl"}


@pytest.mark.parametrize(
    ("text", "launcher"),
    [
        ("import torch", ("torchrun", "torch")),
        ("from torch import nn\nimport deepspeed", ("deepspeed", "deepspeed")),
        ("import torch\ndef main():\n    import colossalai", ("colossalai", "colossalai")),
        ("import lightning as L", ("torchrun", "lightning")),
        ("import numpy", ("plain", "")),
        ("", ("plain", "")),
    ],
)
def test_the_launcher_is_that_of_what_is_imported(text: str, launcher: tuple[str, str]) -> None:
    assert read(text, "x.py").launcher == launcher


@pytest.mark.parametrize(
    ("text", "spawns"),
    [
        ("import torch.multiprocessing as mp\nmp.spawn(work, nprocs=2)", True),
        ("import torch\ntorch.multiprocessing.start_processes(work, nprocs=2)", True),
        ("import os\nmp.spawn(work)\nrank = int(os.environ['RANK'])", False),  # either way
        ("nursery.spawn(work)", False),
        ("", False),
    ],
)
def test_a_script_that_starts_its_processes_itself_is_known(text: str, spawns: bool) -> None:
    assert read(text, "x.py").spawns is spawns


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("import sys\nsys.path.insert(0, 'x')", True),
        ("import site\nsite.addsitedir('x')", True),
        ("import os\nos.path.join('x')", False),
    ],
)
def test_a_changed_search_path_is_seen(text: str, changes: bool) -> None:
    assert read(text, "x.py").changes_path is changes


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1\ndef f(:\n", "x.py:2: SyntaxError: "),
        (b"a\0b", "x.py"),
        (b"# -*- coding: nonsense -*-\n", "x.py"),
        ("(" * 5000, "x.py"),
    ],
)
def test_what_is_no_python_is_told_with_its_line(text: str | bytes, told: str) -> None:
    with pytest.raises(SourceError, match=told):
        read(text, "x.py")
