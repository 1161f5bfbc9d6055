"""An object store in a thread: as much of S3 as reading takes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


class Bucket:
    """The bucket `runs`; its lists come in pages of two keys."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.is_down = False
        self.ignores_ranges = False
        self.authorizations: set[str] = set()
        bucket = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                bucket.answer(self)

            def log_message(self, *_: object) -> None:
                """Nothing is printed."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.authorizations.add(request.headers.get("Authorization", "").partition("/")[0])
        parts = urlsplit(request.path)
        key = unquote(parts.path).removeprefix("/runs").lstrip("/")
        if self.is_down:
            code, body = 503, b""
        elif key:
            code, body = self._object(key, request.headers.get("Range"))
        else:
            code, body = 200, self._page(parse_qs(parts.query))
        request.send_response(code)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def _object(self, key: str, wanted: str | None) -> tuple[int, bytes]:
        body = self.objects.get(key)
        if body is None:
            return 404, b""
        if not wanted or self.ignores_ranges:
            return 200, body
        start = int(wanted.removeprefix("bytes=").rstrip("-"))
        return (206, body[start:]) if start < len(body) else (416, b"")

    def _page(self, query: dict[str, list[str]]) -> bytes:
        prefix, after = query["prefix"][0], query.get("continuation-token", [""])[0]
        keys = sorted(k for k in self.objects if k.startswith(prefix) and k > after)
        entries = "".join(
            f"<Contents><Key>{k}</Key><Size>{len(self.objects[k])}</Size></Contents>"
            for k in keys[:2]
        )
        more = f"<NextContinuationToken>{keys[1]}</NextContinuationToken>" if keys[2:] else ""
        space = "http://s3.amazonaws.com/doc/2006-03-01/"
        return f"<ListBucketResult xmlns='{space}'>{entries}{more}</ListBucketResult>".encode()

    @property
    def environment(self) -> dict[str, str]:
        """What a client of it finds in its environment."""
        return {
            "S3_ENDPOINT": self.url.removeprefix("http://"),
            "S3_USE_HTTPS": "0",
            "AWS_ACCESS_KEY_ID": "user",
            "AWS_SECRET_ACCESS_KEY": "word",
        }


@contextmanager
def serving() -> Iterator[Bucket]:
    """A bucket that answers for as long as the block lasts."""
    made = Bucket()
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()
        thread.join(120)
