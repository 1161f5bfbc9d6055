"""``trainyard.report()``: tells the controller how far the training is. Nothing outside of a job.

Imports nothing until it is called in a job; sends from a thread of its own, the newest only, so
that a training never waits for it. Standard library, Python 3.8.
"""

from __future__ import annotations

import os
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threading import Condition, Thread

URL = "KUBEFLOW_TRAINER_SERVER_URL"
CA_CERT = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
TOKEN = "KUBEFLOW_TRAINER_SERVER_TOKEN"
_EVERY_SECONDS, _TIMEOUT_SECONDS = 2.0, 5.0
_SOON_SECONDS = 0.25
"""How soon after the last report a checkpoint is told."""
_LAST_SECONDS, _AGAIN_SECONDS = 3.0, 0.1
"""How long, and how often, the last word is tried before the process goes."""


def report(
    *,
    step: int | None = None,
    total: int | None = None,
    epoch: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    saving: bool = False,
    **metrics: Any,
) -> None:
    """Tell how far the training is: `report(step=120, total=1000, loss=loss)`.

    `step` of `total` steps are done, and `epoch` epochs; `checkpoint` is the path of one that has
    just been written; whatever else is named is a metric, a number or a text. What is left out
    stays as it was told last. Call it as often as you like: the newest is sent every two seconds
    by a thread of its own, and the last one at the end. Outside of a job, and on other ranks than
    0, nothing happens. Raises TypeError or ValueError where a number is none.

    The time of a job is accounted for by this: work begins with the first step that is told, so
    tell the one from which it goes on before it does. From `saving=True` to the next call, a
    checkpoint is being written.
    """
    fields: dict[str, Any] = {name: _text(value) for name, value in metrics.items()}
    given = (
        ("current_step", step, int),
        ("total_steps", total, int),
        ("current_epoch", epoch, float),
    )
    fields.update({name: str(kind(value)) for name, value, kind in given if value is not None})
    path = None if checkpoint is None else os.fspath(checkpoint)
    if os.environ.get(URL) and os.environ.get("RANK", "0") == "0":
        now = monotonic()  # the first call of a process takes a while
        _sender().put(now, fields, path, None if step is None else int(step), saving=saving)


def _text(value: Any) -> str:
    try:
        return repr(float(value))  # also of an array or a tensor with one element
    except (TypeError, ValueError):
        return str(value)[:256]


class _ReportThread:
    """Sends what is told of one process."""

    def __init__(self) -> None:
        # Here, and not in the thread: a fork in the midst of an import would lock the child.
        import atexit
        import http.client
        import json
        import ssl
        import threading
        import urllib.parse

        self.process = os.getpid()
        self._dumps, self._client = json.dumps, http.client
        self._url = urllib.parse.urlsplit(os.environ[URL])
        self._context: Any = None
        self._make_context = ssl.create_default_context
        self._connection: Any = None
        self._changed: Condition = threading.Condition()
        self._metrics: dict[str, str] = {}
        self._checkpoint: dict[str, Any] | None = None
        self._is_new = self._is_due = self._ends = False
        self._until = 0.0
        self._work: dict[str, Any] = {"run": os.urandom(8).hex()}
        self._began = self._saves_since = 0.0
        self._step = 0
        self._thread: Thread = threading.Thread(
            target=self._run, name="trainyard-report", daemon=True
        )
        self._thread.start()
        atexit.register(self._end)

    def put(
        self,
        now: float,
        fields: dict[str, Any],
        path: str | None,
        step: int | None,
        *,
        saving: bool,
    ) -> None:
        with self._changed:
            self._metrics.update(fields)
            self._add_work(now, path, step, saving=saving)
            if path is not None:
                self._checkpoint = {"path": path, **({} if step is None else {"step": step})}
                self._is_due = True
            self._is_new = True
            self._changed.notify()

    def _add_work(self, now: float, path: str | None, step: int | None, *, saving: bool) -> None:
        """When what was done, in seconds since the first step was told."""
        work = self._work
        if step is not None and "first" not in work:
            self._began, work["first"] = now, step
        if "first" not in work:
            return
        seconds = round(now - self._began, 3)
        if self._saves_since:
            work["saving"] = round(work.get("saving", 0.0) + now - self._saves_since, 3)
        self._saves_since = now if saving else 0.0
        if step is not None:
            self._step, work["seconds"] = step, seconds
        if path is not None:
            work.update(savedStep=self._step, savedSeconds=seconds)

    def _end(self) -> None:
        """A thread that runs while the interpreter goes away may crash it."""
        if os.getpid() == self.process:
            with self._changed:
                self._ends, self._until = True, monotonic() + _LAST_SECONDS
                self._changed.notify()
            self._thread.join(_LAST_SECONDS)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_new or self._ends)
                if not self._is_new:
                    return
                self._is_new = self._is_due = False
                checkpoint = self._checkpoint
            is_received = self._send()
            with self._changed:
                if not is_received:
                    self._is_new = not self._ends or monotonic() < self._until
                elif checkpoint is self._checkpoint:
                    self._checkpoint = None
                if not self._ends:
                    self._changed.wait_for(lambda: self._ends, _SOON_SECONDS)
                    rest = _EVERY_SECONDS - _SOON_SECONDS
                    self._changed.wait_for(lambda: self._ends or self._is_due, rest)
                elif not is_received:
                    self._changed.wait(_AGAIN_SECONDS)

    def _body(self) -> bytes:
        metrics = [{"name": name, "value": value} for name, value in self._metrics.items()]
        status: dict[str, Any] = {"metrics": metrics}
        if self._checkpoint is not None:
            status["checkpoint"] = self._checkpoint
        if "first" in self._work:
            status["work"] = {**self._work, "age": round(monotonic() - self._began, 3)}
        return self._dumps({"trainerStatus": status}).encode()

    def _send(self) -> bool:
        """Whether it need not be sent again."""
        was_open = self._connection is not None
        # A connection that was kept may have died with the controller before.
        return self._try() or (was_open and self._connection is None and self._try())

    def _try(self) -> bool:
        try:
            if self._connection is None:
                self._connection = self._open()
                self._connection.connect()
            with self._changed:  # only now: it tells how long ago things were
                body = self._body()
            with open(os.environ[TOKEN]) as file:
                head = {"Authorization": "Bearer " + file.read().strip()}
            head["Content-Type"] = "application/json"
            target = self._url.path + ("?" + self._url.query if self._url.query else "")
            self._connection.request("POST", target, body, head)
            answer = self._connection.getresponse()
            answer.read()
            return bool(answer.status not in (429, 503))
        except Exception:
            # Whatever it is, the training goes on, and the next report comes soon.
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            return False

    def _open(self) -> Any:
        if self._context is None:
            self._context = self._make_context(cafile=os.environ.get(CA_CERT))
        return self._client.HTTPSConnection(
            self._url.hostname or "",
            self._url.port,
            timeout=_TIMEOUT_SECONDS,
            context=self._context,
        )


_thread_of_process: _ReportThread | None = None


def _sender() -> _ReportThread:
    global _thread_of_process
    if _thread_of_process is None or _thread_of_process.process != os.getpid():  # forked since
        _thread_of_process = _ReportThread()
    return _thread_of_process
