"""What a cluster says of itself: a file that does not grow without end."""

from __future__ import annotations

import logging
from typing import TextIO

from trainyard.operator.operator_logging import TextFormatter
from trainyard.podruntime.log_files import keep_end

_LOG_BYTES = 10 << 20


class _Bounded(logging.StreamHandler[TextIO]):
    """Writes to a file that is open for appending, perhaps by others too."""

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        keep_end(self.stream.fileno(), _LOG_BYTES)


def log_to(file: TextIO) -> None:
    """Log there from now on; of a file only the last megabytes are kept."""
    handler = _Bounded(file)
    handler.setFormatter(TextFormatter())
    logging.basicConfig(handlers=[handler], level=logging.INFO)
