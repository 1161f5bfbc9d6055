"""What a user is told of an error, wherever it came from. Imports nothing heavy."""

from __future__ import annotations

from trainyard.schema.errors import InvalidManifest, TrainyardError


def expected_error(error: BaseException) -> TrainyardError | None:
    """The error meant for the user in `error`, which may be a task group's; None for a defect.

    With several errors in a group the first is the cause. What a limit of the system has caused
    says which.
    """
    if (limit := _limit_met(error)) is not None:
        return limit
    if not isinstance(error, BaseExceptionGroup):
        return error if isinstance(error, TrainyardError) else None
    expected, rest = error.split(TrainyardError)
    found: BaseException | None = expected
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found if rest is None and isinstance(found, TrainyardError) else None


def _limit_met(error: BaseException) -> TrainyardError | None:
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_limit_met, error.exceptions)), None)
    if not isinstance(error, OSError):
        return None
    from trainyard.embedded import rlimits

    return rlimits.explain_limit_error(error)


def is_broken_pipe(error: BaseException) -> bool:
    """Whether all that went wrong is that nobody reads the output any more."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_broken_pipe(each) for each in error.exceptions)
    return isinstance(error, BrokenPipeError)


def message(error: TrainyardError) -> str:
    """The text for the terminal; problems of a manifest say themselves what they are."""
    return str(error) if isinstance(error, InvalidManifest) else f"error: {error}"
