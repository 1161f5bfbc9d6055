"""The field of run policies that has nodes checked before a job starts (decision 295)."""

from typing import Annotated

from pydantic import Field

from trainyard.schema.model import INT32_MAX, Model


class NodeCheck(Model):
    """A short test of the nodes before the command of each replica starts."""

    enabled: bool = Field(
        default=False,
        description="Whether each replica, whenever all start, first tries a matmul and, "
        "with one other after the other, a collective; a node that fails or is far slower is "
        "named. It takes a shell, a Python (3.8 or newer) and torch in the image; whatever is "
        "missing or fails, the command starts. Defaults to false.",
        examples=[True],
    )
    timeout_seconds: Annotated[int, Field(ge=1, le=INT32_MAX)] = Field(
        default=300,
        description="Seconds that a replica waits for the others to be ready for the test; then "
        "its command starts. The test itself takes seconds, and three minutes at most. Defaults "
        "to 300.",
        examples=[300],
    )


NODE_CHECK: NodeCheck = Field(
    default_factory=NodeCheck.empty,
    description="Ours. A short test of the nodes before the start. Not for elastic jobs.",
    examples=[{"enabled": True}],
)
"""`node_check` of the `run_policy` of kinds that support it."""
