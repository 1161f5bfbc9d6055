"""Lines of an operator's log: as text, as JSON, and which job they are about."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterator
from io import StringIO

import pytest

from trainyard.operator import operator_logging
from trainyard.operator.metrics.health_endpoints import HealthEndpoints
from trainyard.operator.reconcile.job_records import JobKey

KEY = JobKey("DeepSpeedJob", "team", "digits")
log = logging.getLogger("trainyard.test")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """What pytest itself listens to."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before


def write(form: operator_logging.Format, level: str = "info") -> list[str]:
    """The lines of a small program."""
    stream = StringIO()
    operator_logging.configure_logging(stream, level, form)

    async def inside() -> None:
        log.warning("a pod of %s", "digits")

    async def main() -> None:
        log.debug("not told")
        log.info("of no job")
        with operator_logging.job_log_context(KEY):
            await asyncio.create_task(inside())
        log.info("half a character: \udc80", extra={"job": KEY})
        try:
            raise ValueError("no")
        except ValueError:
            with operator_logging.job_log_context(KEY):
                log.exception("failed")

    asyncio.run(main())
    return stream.getvalue().splitlines()


def test_text_has_the_key_in_front_of_the_message() -> None:
    lines = write("text")
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.fullmatch(f"{time} INFO trainyard.test: of no job", lines[0])
    prefix = "trainyard.test deepspeedjob/team/digits: a pod of digits"
    assert re.fullmatch(f"{time} WARNING {prefix}", lines[1])
    assert lines[-1] == "ValueError: no"


def test_json_is_one_object_a_line() -> None:
    first, about, half, failed = map(json.loads, write("json"))
    assert (first["level"], first["logger"], first["message"]) == (
        "info",
        "trainyard.test",
        "of no job",
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", first["time"])
    assert "job" not in first
    job = {"kind": "DeepSpeedJob", "namespace": "team", "name": "digits"}
    assert (about["job"], about["message"]) == (job, "a pod of digits")
    assert (half["job"], half["message"]) == (job, "half a character: \udc80")
    assert failed["exception"].endswith("ValueError: no")


def test_what_is_below_the_level_is_not_told() -> None:
    assert len(write("json", "warning")) == 2


def test_who_speaks_no_http_fills_no_log_with_tracebacks() -> None:
    stream = StringIO()
    operator_logging.configure_logging(stream)

    async def main() -> bytes:
        endpoints = HealthEndpoints("127.0.0.1", 0, lambda: (True, "leading"), None)
        async with endpoints.serving():
            reader, writer = await asyncio.open_connection("127.0.0.1", endpoints.port)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \x01\r\n\r\n")
            answer = await reader.readline()
            writer.close()
            return answer

    assert b" 400 " in asyncio.run(main())
    assert "serving" in stream.getvalue()
    assert "Traceback" not in stream.getvalue()
