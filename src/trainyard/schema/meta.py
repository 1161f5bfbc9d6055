"""The part of Kubernetes ObjectMeta that the product reads; the rest is kept as it is."""

from pydantic import Field

from trainyard.schema.model import Items, OpenModel, Time


class OwnerReference(OpenModel):
    """The object on whose life this one's depends."""

    api_version: str = Field(default="", description="API version of the owner.")
    kind: str = Field(default="", description="Kind of the owner.")
    name: str = Field(default="", description="Name of the owner.")
    uid: str = Field(default="", description="UID of the owner.")
    controller: bool | None = Field(
        default=None, description="Whether the owner manages this object."
    )
    block_owner_deletion: bool | None = Field(
        default=None, description="Whether foreground deletion of the owner waits for this object."
    )


class ObjectMeta(OpenModel):
    """Standard object metadata."""

    name: str = Field(default="", description="Name, unique within kind and namespace.")
    generate_name: str = Field(
        default="", description="Prefix of a name that the server completes when `name` is unset."
    )
    namespace: str = Field(default="", description="Namespace of the object.")
    uid: str = Field(default="", description="UID, set by the server.")
    generation: int = Field(
        default=0, description="Number of the spec's version, set by the server."
    )
    resource_version: str = Field(
        default="", description="Version of the object, set by the server."
    )
    labels: dict[str, str] = Field(default={}, description="Labels to select by.")
    annotations: dict[str, str] = Field(default={}, description="Free notes.")
    creation_timestamp: Time | None = Field(default=None, description="Set by the server.")
    deletion_timestamp: Time | None = Field(default=None, description="Set by the server.")
    finalizers: Items[str] = Field(
        default=(), description="What must happen before the object goes."
    )
    owner_references: Items[OwnerReference] = Field(
        default=(), description="Objects that own this one."
    )
