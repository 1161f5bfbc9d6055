"""Where replicas stand in a live table, at every size of a terminal."""

from __future__ import annotations

import io
import itertools
import re

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tests.unit.client.objects import found, job, pod, views
from trainyard.cli.live_screen import LiveScreen
from trainyard.cli.replica_table import Row, layout_lines, strip_control

WIDTHS = range(20, 201)
LONG = "a-replica-type-with-a-name-as-long-as-names-may-be-at-all-0123-9"
NAMES = {
    "short": ["worker-0", "worker-1", "master"],
    "long": [LONG, "worker-0"],
    "wide": ["工人-0", "工人-1", "e\u0301le\u0300ve-0"],
}
FIGURES = {"exit": "", "cpu": "1520m", "memory": "1024Mi", "gpu": "97%"}
TEXTS = [" 45%|████▌     | 45/100 [00:04<00:05, 9.9it/s, loss=0.2]", "第一轮 " * 30, ""]


def rows(names: list[str]) -> list[Row]:
    phases = itertools.cycle(["Running", "Terminating", "Pending"])
    return [
        Row(name, next(phases), FIGURES, text)
        for name, text in zip(names, itertools.cycle(TEXTS), strict=False)
    ]


def joined(lines: list[Text]) -> str:
    return "\n".join(line.plain for line in lines)


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_names_and_phases_are_whole_at_every_width_and_no_line_is_wider(names: list[str]) -> None:
    for width in WIDTHS:
        lines = layout_lines(rows(names), width, 100)
        assert max(cell_len(line.plain) for line in lines) <= width
        text = joined(lines)
        for row in rows(names):
            assert row.name in (text if cell_len(row.name) <= width else text.replace("\n", ""))
            assert row.phase in text


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 200])
def test_the_line_that_grows_is_seen_at_every_width(width: int) -> None:
    assert " 45%|█" in joined(layout_lines(rows(NAMES["short"]), width, 100))


def test_what_there_is_room_for_stands_beside_the_name() -> None:
    shown = joined(layout_lines(rows(NAMES["short"])[:1], 88, 100))
    assert shown.split("\n") == [
        "REPLICA   PHASE      CPU  MEMORY  GPU",
        "worker-0  Running  1520m  1024Mi  97%  45%|████▌     | 45/100 [00:04<00:05, 9.9it/s, lo…",
    ]


def test_figures_without_a_text_beside_them_are_all_shown() -> None:
    for width in WIDTHS:
        shown = joined(layout_lines([Row("worker-0", "Running", FIGURES)], width, 100))
        for figure in ("1520m", *(["1024Mi", "97%"] if width > 34 else [])):
            assert figure in shown


@pytest.mark.parametrize("width", [20, 80, 200])
def test_hundreds_of_replicas_fit_and_the_rest_is_counted(width: int) -> None:
    phases = ["Failed" if number == 300 else "Running" for number in range(500)]
    many = [Row(f"worker-{n}", phase, FIGURES, "text") for n, phase in enumerate(phases)]
    for height in range(1, 60):
        lines = layout_lines(many, width, height)
        assert len(lines) <= height
        if height >= 6:
            assert "worker-300" in joined(lines)
            listed = joined(lines).count("worker-")
            assert lines[-1].plain.startswith(f"… {500 - listed} more: {500 - listed} R")
            assert len(lines) >= height - 1


def test_what_would_move_the_cursor_is_left_out() -> None:
    text = "a\x1b[2K\x1b[1Ab\x1b]0;title\x07c\x1b[31md\x1b[0m\te\x08\x9b"
    assert strip_control(text) == "abcd e"


def shown_by(console: Console) -> LiveScreen:
    """A screen with two jobs of two replicas each."""
    screen = LiveScreen(names_jobs=True, console=console)
    for uid in ("1", "2"):
        obj = job("Running")
        obj["metadata"]["uid"] = uid
        view = found(obj)
        view.pods = {p.name: p for p in views(pod("worker-0"), pod("worker-1", phase="Running"))}
        screen.job_changed(view)
        screen.line_grew(view, "worker-1/main", " 45%|###")
    return screen


@pytest.mark.parametrize("width", [20, 45, 120])
@pytest.mark.parametrize(("height", "titles", "bars"), [(2, 2, 0), (9, 2, 2), (40, 2, 2)])
def test_several_jobs_share_the_height(width: int, height: int, titles: int, bars: int) -> None:
    lines = shown_by(Console(file=io.StringIO())).lines(width, height)
    assert len(lines) <= height
    assert max(cell_len(line.plain) for line in lines) <= width
    assert joined(lines).count("digits") == titles
    if width > 45:
        assert joined(lines).count("45%|") == bars


def test_a_lower_bar_is_no_line_of_the_log() -> None:
    """tqdm goes down to it by a newline, and up again."""
    out = io.StringIO()
    screen = shown_by(Console(file=out))
    [job, _] = screen._jobs.values()
    screen.log_lines(job, "worker-1", ["outer:  0%", "inner: 10%\x1b[A", "inner: 20%\x1b[A"])
    assert out.getvalue() == "[digits/worker-1] outer:  0%\n"
    assert "inner: 20%" in joined(screen.lines(80, 20))
    screen.log_lines(job, "worker-1", ["outer: 50%"])
    assert out.getvalue().endswith("outer: 50%\n")
    assert "inner" not in joined(screen.lines(80, 20))


def drawn(**environment: str) -> str:
    """What a terminal is sent."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, _environ={"TERM": "xterm", **environment})
    with shown_by(console):
        pass
    return out.getvalue()


def test_without_colours_none_are_sent() -> None:
    colour = re.compile(r"\x1b\[3\d")
    assert colour.search(drawn())
    assert not colour.search(drawn(NO_COLOR="1"))
