"""Shows what came of the check of a job's nodes."""

from __future__ import annotations

from datetime import datetime

from trainyard.api.views import Job
from trainyard.cli.text_output import printable
from trainyard.schema.times import age


def node_check_text(job: Job, now: datetime) -> str:
    """Return the state, its age and the nodes that are avoided; "" where none was checked."""
    found = job.node_check
    if not found:
        return ""
    text = f"{found.get('state')}, {age(found.get('time'), now)} ago: {found.get('message')}"
    if avoided := found.get("avoided"):
        text += f"; avoids {', '.join(map(str, avoided))}"
    return printable(text)
