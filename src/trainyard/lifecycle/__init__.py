"""`plan()`: every decision about a job's life, one policy per file.

Pure: no awaiting, no I/O, no clock.
"""

from trainyard.lifecycle.actions import Action, Create, Delete, Event, Patch, Plan
from trainyard.lifecycle.completion.invalid_object import InvalidObject, plan_invalid
from trainyard.lifecycle.observed import Conflict, Observed, Owned, Pod, Refusal
from trainyard.lifecycle.plan import plan

__all__ = [
    "Action",
    "Conflict",
    "Create",
    "Delete",
    "Event",
    "InvalidObject",
    "Observed",
    "Owned",
    "Patch",
    "Plan",
    "Pod",
    "Refusal",
    "plan",
    "plan_invalid",
]
