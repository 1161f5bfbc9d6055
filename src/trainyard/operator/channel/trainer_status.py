"""Reads `trainerStatus`, the progress report of a training: what Kubeflow Trainer 2.2 and Hugging
Face's KubeflowCallback send and, beyond that, a `checkpoint`, the `work` done, and the `source` of
what the program does not report itself.

Step, total and epoch have no field of their own there: they are metrics, by the callback's names.
https://github.com/kubeflow/trainer/tree/master/docs/proposals/2779-trainjob-progress
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

from trainyard.lifecycle.pod_reports import SOURCES, Checkpoint, ProcessWork, Progress
from trainyard.schema.errors import TrainyardError

_STEP, _TOTAL, _EPOCHS = "current_step", "total_steps", ("current_epoch", "epoch")
"""Hugging Face's trainer logs the epoch by its second name, at the end by that alone."""
_MAX_METRICS, _MAX_NAME, _MAX_VALUE, _MAX_PATH = 64, 128, 256, 1024
_MAX_RUN = 64
_MOST = 2**53
_MOST_SECONDS = 1e9


class BadReport(TrainyardError):
    """A report has an invalid field, which the text names."""


def parse_trainer_status(given: Any, replica: str, at: datetime) -> Progress:
    """Parse and validate a report of `replica`, received `at`; raises BadReport."""
    if not isinstance(given, dict):
        raise BadReport("trainerStatus: not an object")
    percentage = _whole(given, "progressPercentage", 100)
    remaining = _whole(given, "estimatedRemainingSeconds", _MOST)
    named = _metrics(given.get("metrics"))
    step, total = _number(named, _STEP), _number(named, _TOTAL)
    shown = {k: value for k, value in named.items() if k not in (_STEP, _TOTAL, *_EPOCHS)}
    epochs = [each for name in _EPOCHS if (each := _number(named, name)) is not None]
    return Progress(
        at=at,
        replica=replica,
        step=None if step is None else int(step),
        total=int(total) if total and total >= 1 else None,
        epoch=epochs[0] if epochs else None,
        percentage=percentage,
        remaining=remaining,
        metrics=tuple(shown.items()) or None,
        checkpoint=_checkpoint(given.get("checkpoint"), at),
        work=_work(given.get("work"), at),
        source=_source(given.get("source", "")),
    )


def _source(given: Any) -> str:
    if given not in SOURCES:
        raise BadReport(f"trainerStatus.source: not {' or '.join(filter(None, SOURCES))}")
    return str(given)


def _whole(given: dict[str, Any], name: str, most: int, below: str = "") -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= most:
        raise BadReport(f"trainerStatus.{below}{name}: not a whole number from 0 to {most}")
    return value


def _metrics(given: Any) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, list) or len(given) > _MAX_METRICS:
        raise BadReport(f"trainerStatus.metrics: not a list of at most {_MAX_METRICS}")
    found = {}
    for index, each in enumerate(given):
        name, value = (
            (each.get("name"), each.get("value")) if isinstance(each, dict) else (None, None)
        )
        if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
            text = f"not a text of 1 to {_MAX_NAME} letters"
            raise BadReport(f"trainerStatus.metrics[{index}].name: {text}")
        if not isinstance(value, str) or len(value) > _MAX_VALUE:
            text = f"not a text of at most {_MAX_VALUE} letters"
            raise BadReport(f"trainerStatus.metrics[{index}].value: {text}")
        found[name] = value
    return found


def _number(named: dict[str, str], name: str) -> float | None:
    """One of the metrics that we know, or None where it is missing or not a number."""
    try:
        found = float(named[name])
    except (KeyError, ValueError):
        return None
    return found if math.isfinite(found) and 0 <= found <= _MOST else None


def _checkpoint(given: Any, at: datetime) -> Checkpoint | None:
    if given is None:
        return None
    path = given.get("path") if isinstance(given, dict) else None
    if not isinstance(path, str) or not 0 < len(path) <= _MAX_PATH:
        text = f"not a text of 1 to {_MAX_PATH} letters"
        raise BadReport(f"trainerStatus.checkpoint.path: {text}")
    step = given.get("step")
    if step is not None and (type(step) is not int or not 0 <= step <= _MOST):
        raise BadReport("trainerStatus.checkpoint.step: not a whole number from 0")
    return Checkpoint(path, at, step)


def _work(given: Any, at: datetime) -> ProcessWork | None:
    """What `training_report` reports of its process; `age` is in seconds since the first step."""
    if given is None:
        return None
    if not isinstance(given, dict):
        raise BadReport("trainerStatus.work: not an object")
    run, first = given.get("run"), _whole(given, "first", _MOST, "work.")
    if not isinstance(run, str) or not 0 < len(run) <= _MAX_RUN:
        raise BadReport(f"trainerStatus.work.run: not a text of 1 to {_MAX_RUN} letters")
    if first is None:
        raise BadReport("trainerStatus.work.first: missing")
    step = _whole(given, "savedStep", _MOST, "work.")
    saved = None if step is None else (step, _seconds(given, "savedSeconds"))
    return ProcessWork(
        run=run,
        began=at - timedelta(seconds=_seconds(given, "age")),
        first=first,
        seconds=_seconds(given, "seconds"),
        saved=saved,
        saving=_seconds(given, "saving"),
    )


def _seconds(given: dict[str, Any], name: str) -> float:
    value = given.get(name, 0.0)
    if type(value) not in (int, float) or not 0 <= value <= _MOST_SECONDS:
        raise BadReport(f"trainerStatus.work.{name}: not a number of seconds")
    return float(value)
