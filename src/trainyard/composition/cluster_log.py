"""The log of an embedded cluster: a file that does not grow without end."""

from __future__ import annotations

import logging
from typing import TextIO

from trainyard.operator.operator_logging import TextFormatter
from trainyard.podruntime.log_files import keep_end

_LOG_BYTES = 10 << 20


class _BoundedHandler(logging.StreamHandler[TextIO]):
    """Writes to a file that is open for appending, perhaps by other processes too."""

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        keep_end(self.stream.fileno(), _LOG_BYTES)


def log_to(file: TextIO) -> None:
    """Log to `file` from now on; of a regular file only the last 10 MiB are kept."""
    handler = _BoundedHandler(file)
    handler.setFormatter(TextFormatter())
    logging.basicConfig(handlers=[handler], level=logging.INFO)
