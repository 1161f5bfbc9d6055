"""Times as the API has them, and durations as kubectl writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from trainyard.schema import times
from trainyard.schema.times import age, parse, span

NOW = datetime(2026, 8, 2, 12, tzinfo=UTC)
FINE = datetime(2024, 8, 2, 9, 3, 59, 1200, tzinfo=timezone(timedelta(hours=2)))


def ago(seconds: float) -> str:
    return times.render(NOW - timedelta(seconds=seconds))


def test_a_time_is_written_in_utc_with_microseconds_where_there_are_any() -> None:
    assert times.render(FINE) == "2024-08-02T07:03:59.001200Z"
    assert times.render(FINE.replace(microsecond=0)) == "2024-08-02T07:03:59Z"
    assert times.render_micro(FINE.replace(microsecond=0)) == "2024-08-02T07:03:59.000000Z"
    assert parse(times.render(FINE)) == FINE


def test_seconds_and_nanoseconds_since_1970_come_back() -> None:
    text = times.from_nanoseconds(1_500_000_000_123_456_789)
    assert text == "2017-07-14T02:40:00.123456Z"
    assert times.nanoseconds("2017-07-14T02:40:00.5Z") == 1_500_000_000_500_000_000
    assert times.unix(text) == 1_500_000_000
    assert times.from_unix(1_500_000_000) == "2017-07-14T02:40:00Z"


@pytest.mark.parametrize("text", ["", "now", "2024-08-02T07:03:59", "24:00"])
def test_a_text_without_date_and_zone_is_no_time(text: str) -> None:
    assert not times.is_time(text)
    assert times.is_time("2024-08-02T07:03:59Z")


def test_the_earliest_of_no_moments_is_none() -> None:
    assert times.earliest(None, FINE, NOW) == FINE
    assert times.earliest(None) is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (119, "119s"), (303, "5m3s"), (7200, "120m"), (90000, "25h")]
)
def test_an_age_reads_as_in_kubectl(seconds: float, text: str) -> None:
    assert age(ago(seconds), NOW) == text


def test_an_absent_time_has_no_age() -> None:
    assert age(None, NOW) == "<unknown>"


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        (ago(10), ago(9.5), "0.5s"),
        (ago(100), ago(40), "60s"),
        (ago(30), None, "30s"),
        (None, None, ""),
        (ago(-5), None, "0.0s"),
    ],
)
def test_a_span_lasts_until_its_end_or_now(start: str | None, end: str | None, text: str) -> None:
    assert span(start, end, NOW) == text


def test_a_time_without_a_zone_is_utc() -> None:
    assert parse("2026-08-02T12:00:00") == NOW


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (11_000, "3h3m"),
        (86_400, "24h"),
        (180_000, "2d2h"),
        (8 * 86_400, "8d"),
        (800 * 86_400, "2y70d"),
        (3000 * 86_400, "8y"),
    ],
)
def test_ages_are_written_as_kubectl_writes_them(seconds: int, text: str) -> None:
    assert times.duration(seconds) == text
