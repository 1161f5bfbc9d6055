"""Mutants that no test can notice, since they behave like the original, each with the reason."""

from __future__ import annotations

from tools.mutants import Mutant

_CONTAINER = "replica.pod.container(name)"
_EQUIVALENT: dict[tuple[str, str], str] = {
    (
        "restart_backoff.exponential_delay",
        "return timedelta(seconds=min(base * 2.0 ** min(count - 1, 31), most))",
    ): "2 to the 30th is more seconds than any limit",
    (
        "conditions.set_not_running",
        "conditions.set(ConditionType.RUNNING, None, reason, message)",
    ): "None is as false as False, and only that is asked",
    (
        "deadline.deadline_verdict",
        "return Verdict(None, ConditionReason.DEADLINE_EXCEEDED, texts.overdue(workload))",
    ): "None is as false as False, and only that is asked",
    (
        "launch_policy._main_container",
        f"return {_CONTAINER} if replica.pod is not None or name is not None else None",
    ): "asked of replicas that run, which have a pod; no container has the name None",
    (
        "launch_policy._main_container",
        f"return {_CONTAINER} if replica.pod is not None and name is not None or True else None",
    ): "asked of replicas that run, which have a pod; no container has the name None",
    (
        "status_builder.StatusBuilder.goes_on",
        "self.status['phase'] = None",
    ): "every pass that gets here sets a phase later",
}
"""By the function as one would write it, and the line that the mutant puts in."""


def is_equivalent(mutant: Mutant) -> bool:
    """Whether the mutant is listed."""
    functions = {function for function, _ in _EQUIVALENT}
    if mutant.title not in functions:
        return False
    new = [line[1:].strip() for line in mutant.change() if line.startswith("+")]
    return (mutant.title, "\n".join(new)) in _EQUIVALENT
