"""Sends reports to the controller over one connection that is kept, as small JSON documents.

A controller that is away costs little: it is asked again later and later, and nothing is kept for
it. Mounted into the user's image: standard library, Python 3.8.
"""

from __future__ import annotations

import json
import ssl
import time
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

# What a connection would import, in a thread, where a fork must not meet it.
import encodings.idna  # noqa: F401  # isort: skip

TIMEOUT_SECONDS = 3.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 2.0, 60.0


class ReportClient:
    """A client of the controller's channel, with one connection that is kept while it works."""

    def __init__(self, url: str, files: str) -> None:
        """`files`: the folder with the controller's certificate and the job's token."""
        self._url = urlsplit(url)
        self._certificate, self._token = Path(files, "ca.crt"), Path(files, "token")
        self._connection: HTTPSConnection | None = None
        self._pause_seconds, self._next_try_at = FIRST_PAUSE_SECONDS, 0.0

    def send(self, document: dict[str, Any]) -> bool:
        """Send a report; return whether the controller has accepted it.

        After a failure nothing is sent for a while, and this returns False at once.
        """
        if time.monotonic() < self._next_try_at:
            return False
        if self.ask(document)[0] == 200:
            self._pause_seconds = FIRST_PAUSE_SECONDS
            return True
        self.close()
        self._next_try_at = time.monotonic() + self._pause_seconds
        self._pause_seconds = min(self._pause_seconds * 2, LONGEST_PAUSE_SECONDS)
        return False

    def ask(self, document: dict[str, Any]) -> tuple[int, bytes]:
        """Send it now; return the HTTP status and body of the answer, or 0 and b"" without one."""
        body = json.dumps(document).encode()
        was_open = self._connection is not None
        answer = self._try(body)
        if answer[0] == 0 and was_open:  # the controller may have closed what was idle
            answer = self._try(body)
        return answer

    def close(self) -> None:
        """Close the connection; the next report opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _try(self, body: bytes) -> tuple[int, bytes]:
        try:
            return self._post(body)
        except (OSError, HTTPException, ValueError):
            self.close()
            return 0, b""

    def _post(self, body: bytes) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = HTTPSConnection(
                self._url.hostname or "",
                self._url.port,
                timeout=TIMEOUT_SECONDS,
                # Read anew: it may have come, or been made anew, since the pod began.
                context=ssl.create_default_context(cafile=str(self._certificate)),
            )
        headers = {
            "Authorization": "Bearer " + self._token.read_text(encoding="utf-8").strip(),
            "Content-Type": "application/json",
        }
        self._connection.request("POST", f"{self._url.path}?{self._url.query}", body, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()
