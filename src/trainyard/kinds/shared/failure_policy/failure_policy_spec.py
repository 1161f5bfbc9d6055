"""``runPolicy.podFailurePolicy`` (ours): what follows from a failure, by exit code or reason.

The shape is that of batch/v1's, so that rules can be taken over from a Job as they are; ours are
`onReasons`, `replicaTypes` and the action Restart (decision 114).
https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy
"""

from typing import Annotated, Literal

from pydantic import Field, Strict, WithJsonSchema

from trainyard.kinds.shared.workload import ExitCodes, FailureAction, FailureRule
from trainyard.schema.model import INT32_MAX, Items, Model

Action = Annotated[
    FailureAction,
    Strict(False),
    WithJsonSchema({"enum": [action.value for action in FailureAction], "type": "string"}),
]
Int32 = Annotated[int, Field(ge=-INT32_MAX - 1, le=INT32_MAX)]


class OnExitCodes(Model):
    """The exit codes that a rule is about."""

    container_name: str | None = Field(
        default=None,
        description="Container or init container whose exit code counts. Unset, it is that by "
        "which the replica failed: the training or launcher container, or an init container; in a "
        "GenericJob any container.",
    )
    operator: Literal["In", "NotIn"] = Field(
        description="In: the exit code is one of `values`. NotIn: it is none of them. An exit code "
        "0 is no failure, and matches neither.",
        examples=["In"],
    )
    values: Items[Int32] = Field(
        description="Exit codes, 1 to 255 of them in ascending order, each once; 0 only with "
        "NotIn.",
        examples=[[42]],
    )


class OnPodCondition(Model):
    """A condition of the pod that a rule is about."""

    type: str = Field(
        description="Type of the condition. DisruptionTarget is held to be True of whatever the "
        "cluster took away, also where only the pod's reason says so.",
        examples=["DisruptionTarget"],
    )
    status: Literal["True", "False", "Unknown"] = Field(
        default="True",
        description="Status of the condition, in quotes. Defaults to 'True'.",
        examples=["True"],
    )


class PodFailureRule(Model):
    """What follows from failures of one sort; one of the three `on…` fields says of which."""

    action: Action = Field(
        description="FailJob: the job fails at once. Ignore: the replica starts again, and nothing "
        "is spent. Count: the failure is the replica's own, and restartPolicy decides. Restart "
        "(ours): it starts again whatever restartPolicy says, as long as the budget lasts.",
        examples=["FailJob"],
    )
    on_exit_codes: OnExitCodes | None = Field(
        default=None,
        description="Failures with these exit codes. What the cluster took away has none of its "
        "own.",
        examples=[{"operator": "In", "values": [42]}],
    )
    on_pod_conditions: Items[OnPodCondition] = Field(
        default=(),
        description="Failures of pods with one of these conditions; at most 20.",
    )
    on_reasons: Items[str] = Field(
        default=(),
        description="Ours. Failures with one of these reasons, as status tells them: OOMKilled, "
        "Evicted, NodeLost, Deleted …; at most 20.",
    )
    replica_types: Items[str] = Field(
        default=(),
        description="Ours. The replica types that the rule is about. Defaults to all.",
        examples=[["worker"]],
    )

    def compiled(self) -> FailureRule:
        """The rule in the form that the lifecycle uses."""
        codes = self.on_exit_codes
        return FailureRule(
            action=FailureAction(self.action),
            types=frozenset(self.replica_types),
            codes=ExitCodes(codes.container_name, codes.operator == "In", frozenset(codes.values))
            if codes
            else None,
            conditions=tuple((each.type, each.status) for each in self.on_pod_conditions),
            reasons=self.on_reasons,
        )


class PodFailurePolicy(Model):
    """What follows from a failure, by exit code, condition or reason."""

    rules: Items[PodFailureRule] = Field(
        description="At most 20, in order: the first that matches a failure decides on it. Where "
        "none does, restartPolicy decides.",
        examples=[
            [
                {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
            ]
        ],
    )


POD_FAILURE_POLICY: PodFailurePolicy | None = Field(
    default=None,
    description="Ours, in the shape of batch/v1's: what follows from a failure, by exit code, "
    "condition or reason, before restartPolicy is asked.",
    examples=[
        {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}
    ],
)
"""`pod_failure_policy` of every run policy."""
