"""An error of the kernel names the limit behind it and how to raise it; others stay as they are."""

from __future__ import annotations

import errno
import os
import resource

import pytest

from trainyard.podruntime import limit_errors


def test_too_many_open_files_name_the_hard_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = limit_errors.explain(OSError(errno.EMFILE, "Too many open files", "/x"))
    assert text.startswith("Too many open files: '/x': ")
    assert f"RLIMIT_NOFILE permits {hard} open files" in text
    assert "ulimit -Hn" in text


def test_too_many_processes_name_all_limits_that_there_are() -> None:
    text = limit_errors.explain(OSError(errno.EAGAIN, f"clone: {os.strerror(errno.EAGAIN)}"))
    assert text.startswith("clone: Resource temporarily unavailable: no more processes")
    assert "kernel.pid_max" in text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("why"), "why"),
        (KeyError(), "KeyError"),
        (OSError("only text"), "only text"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/x"), "No such file: '/x'"),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), "No space left on device: '/x'"),
    ],
)
def test_other_errors_say_what_they_said(error: BaseException, text: str) -> None:
    assert limit_errors.explain(error) == text


def test_no_more_namespaces_name_their_setting() -> None:
    text = limit_errors.explain(OSError(errno.ENOSPC, "unshare: No space left on device"))
    assert "user.max_*_namespaces" in text
