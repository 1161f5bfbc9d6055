"""Commands as lines for a shell (decision 109)."""

from __future__ import annotations

import pytest

from trainyard.kinds.shared.pods.shell_quoting import shell_line


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["python", "train.py", "a b"], "python train.py 'a b'"),
        (["echo", "it's", ""], """echo 'it'"'"'s' ''"""),
        (["echo", "$(RANK)/$(OTHER)/$$(RANK)/$$5"], """echo "${RANK}"'/$(OTHER)/$(RANK)/$5'"""),
    ],
)
def test_a_line_is_what_a_kubelet_would_run(words: list[str], line: str) -> None:
    assert shell_line(words, {}, ["RANK"]) == line
    quoted = shell_line(words, {"RANK": "3 or 4"}, [])
    assert quoted == f"export RANK='3 or 4'; {line}"
