"""The models of `status.nodeCheck` (decision 295)."""

from pydantic import Field

from trainyard.schema.model import Items, OpenModel, Time


class BadNode(OpenModel):
    """A node that did badly in the check before the start."""

    replica: str = Field(default="", description="Name of the pod whose node it is.")
    node: str = Field(default="", description="Name of the node.")
    reason: str = Field(default="", description="What it did.")
    avoided: bool = Field(
        default=False,
        description="Whether the replica gets another pod since the job's pods are kept off it.",
    )


class NodeCheckMember(OpenModel):
    """A replica that takes part in a check, and where the others find it."""

    replica: str = Field(default="", description="Name of the pod.")
    host: str = Field(default="", description="What its peers call it.")
    port: int = Field(default=0, description="Where it listens.")


class NodeCheckStatus(OpenModel):
    """The check of the nodes before the last start of all replicas."""

    attempt: int = Field(default=0, description="The attempt before which it was.")
    state: str = Field(
        default="",
        description="Checking; Passed; BadNodes; or Incomplete, where not all could be tested, or "
        "what failed cannot be laid to one node. Whatever it is, the commands start, if not on "
        "nodes that are avoided.",
    )
    message: str = Field(default="", description="What came of it.")
    time: Time | None = Field(default=None, description="When that was so.")
    bad_nodes: Items[BadNode] = Field(
        default=(), description="Nodes that did badly, eight at most."
    )
    members: Items[NodeCheckMember] = Field(
        default=(), description="While it goes on, the replicas that take part."
    )
    avoided: Items[str] = Field(
        default=(),
        description="Nodes that the job's pods are kept off since they did badly, eight at most.",
    )
    avoidance_ended: Time | None = Field(
        default=None,
        description="Since when no node is avoided any more, as pods found no other for two "
        "minutes.",
    )


NODE_CHECK_STATUS: NodeCheckStatus | None = Field(
    default=None,
    description="The check of the nodes before the last start (PyTorchTrainingJob); absent "
    "where `runPolicy.nodeCheck` asks for none.",
)
"""`node_check` of every job's status."""
