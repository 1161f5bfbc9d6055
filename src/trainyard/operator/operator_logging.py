"""Logging of an operator, as text or JSON: each line about a job has the job's key.

A reconcile sets the key once, and every line that is logged during it has it.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TextIO

if TYPE_CHECKING:
    from trainyard.operator.reconcile.job_records import JobKey

Format = Literal["text", "json"]
_job: ContextVar[JobKey | None] = ContextVar("job", default=None)


@contextlib.contextmanager
def job_log_context(key: JobKey) -> Iterator[None]:
    """Lines logged inside are about this job, also in tasks that are started inside."""
    token = _job.set(key)
    try:
        yield
    finally:
        _job.reset(token)


def configure_logging(stream: TextIO, level: str = "info", form: Format = "text") -> None:
    """Log to `stream` from this level up: debug, info, warning or error."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    handler.addFilter(_is_no_http_noise)
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)


def _is_no_http_noise(record: logging.LogRecord) -> bool:
    """Drop aiohttp's tracebacks about malformed HTTP: clients could fill the log with them."""
    if not record.exc_info:
        return True
    from aiohttp.http_exceptions import HttpProcessingError

    return not isinstance(record.exc_info[1], HttpProcessingError)


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z WARNING trainyard.operator.operator_process kind/ns/name: …`."""

    def format(self, record: logging.LogRecord) -> str:
        key = _key(record)
        job = f" {key}:" if key is not None else ":"
        message = super().format(record)  # with the traceback, if there is one
        return f"{_time(record, 'milliseconds')} {record.levelname} {record.name}{job} {message}"


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, and where they belong job and exception."""

    def format(self, record: logging.LogRecord) -> str:
        key = _key(record)
        line: dict[str, Any] = {
            "time": _time(record, "microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if key is not None:
            line["job"] = {"kind": key.kind, "namespace": key.namespace, "name": key.name}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)  # ASCII, since texts may contain lone surrogates


def _key(record: logging.LogRecord) -> JobKey | None:
    key: JobKey | None = getattr(record, "job", None) or _job.get()
    return key


def _time(record: logging.LogRecord, unit: str) -> str:
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec=unit)
    return moment.replace("+00:00", "Z")
