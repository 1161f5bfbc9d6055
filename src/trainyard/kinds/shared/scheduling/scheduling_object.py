"""What PodGroup and Queue share: where they are served, and their one rule."""

from pydantic import Field

from trainyard.kinds.shared.labels import SCHEDULER
from trainyard.schema.meta import ObjectMeta
from trainyard.schema.model import Model
from trainyard.schema.object_names import is_dns_subdomain
from trainyard.schema.problems import Problem, error


class SchedulingObject(Model):
    """Fields common to both; each narrows ``kind`` and adds spec and status."""

    api_version: str = Field(default=f"{SCHEDULER}/v1beta1", description="API version.")
    kind: str = Field(description="The kind of the object.")
    metadata: ObjectMeta = Field(
        default_factory=ObjectMeta.empty, description="Standard object metadata."
    )


def check(obj: SchedulingObject) -> list[Problem]:
    """Every problem that the schema does not show."""
    return check_name(obj.metadata)


def check_name(metadata: ObjectMeta) -> list[Problem]:
    """The name is a DNS subdomain."""
    name = metadata.name or f"{metadata.generate_name}x"
    if is_dns_subdomain(name):
        return []
    message = f"'{name[:80]}' is no name; use lower-case letters, digits, '-' and '.'"
    return [error(("metadata", "name"), message)]
