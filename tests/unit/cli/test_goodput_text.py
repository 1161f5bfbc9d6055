"""The bar of what a job's time was spent on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from trainyard.cli.goodput_text import goodput_text
from trainyard.schema.times import render

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_time_goes_on_since_the_last_write() -> None:
    goodput = {"starting": 10.0, "training": 50.0, "state": "training"}
    status = {"goodput": {**goodput, "asOf": render(NOW - timedelta(seconds=40))}}
    assert (
        goodput_text(status, NOW) == f"90 % of 100s: 10s starting, 90s training\n[ssss{'=' * 36}]"
    )


def test_a_restart_whose_loss_nobody_tells_is_marked() -> None:
    status = {"goodput": {"training": 30.0, "restarting": 10.0}}
    assert "what was lost is unknown" in goodput_text(status, NOW)
    status = {"goodput": {"training": 25.0, "lost": 5.0, "restarting": 10.0}}
    assert goodput_text(status, NOW).endswith(f"[{'=' * 25}{'x' * 5}{'r' * 10}]")


def test_without_any_step_that_was_told_the_share_is_unknown() -> None:
    """All ran, and may have imported or met for all that is known."""
    text = goodput_text({"goodput": {"starting": 10.0, "unknown": 30.0}}, NOW)
    assert text.startswith("unknown of 40s: 10s starting, 30s unknown; no step was told\n")
    assert text.endswith(f"[{'s' * 10}{'?' * 30}]")
    text = goodput_text({"goodput": {"unknown": 10.0, "training": 30.0}}, NOW)
    assert text.startswith("75 % of 40s: 10s unknown, 30s training\n")


def test_what_is_missing_or_odd_is_left_out() -> None:
    assert goodput_text({}, NOW) == ""
    assert (
        goodput_text({"goodput": {"training": "much", "state": "dancing", "asOf": ""}}, NOW) == ""
    )
