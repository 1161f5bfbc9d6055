"""The table of all policies, in the order in which they are evaluated.

To add one, write its file and add its row; to remove one, delete both. Nothing else lists them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainyard.lifecycle.completion import deadline, verdicts
from trainyard.lifecycle.goodput import goodput_status
from trainyard.lifecycle.hang import hang_policy
from trainyard.lifecycle.in_place import in_place_restart
from trainyard.lifecycle.launch import launch_policy
from trainyard.lifecycle.node_check import node_check_avoidance, node_check_policy
from trainyard.lifecycle.pod_reports import InPlaceReport
from trainyard.lifecycle.policy import Evaluate, PodReport, Policy, Stage, ends_job
from trainyard.lifecycle.progress import progress_status
from trainyard.lifecycle.straggler import straggler_status
from trainyard.lifecycle.viewer import viewer_links

POLICIES: Sequence[Policy] = (
    Policy("launch timeout", launch_policy.time_out, (Stage.START,)),
    # Where one replica decides, its exit 0 ends the job before anything else is looked at.
    Policy("deciding replica", ends_job(verdicts.success_of_deciding_replica), (Stage.START,)),
    # Its clock may start in this very reconcile, so the deadline is asked for twice.
    Policy("deadline", deadline.evaluate, (Stage.START, Stage.RUNNING)),
    Policy("hang", hang_policy.evaluate, (Stage.REPORTS,)),
    Policy("straggler", straggler_status.evaluate, (Stage.REPORTS,)),
    Policy(
        "node check",
        node_check_policy.evaluate,
        (Stage.REPORTS,),
        pod_edit=node_check_avoidance.pod_edit,
        pod_report=node_check_policy.POD_REPORT,
    ),
    # Decision 22: success wins over any failure that holds at the same time.
    Policy("success", ends_job(verdicts.success_after_restarts), (Stage.RESTARTS,)),
    Policy("queue maxDuration", ends_job(verdicts.removed_by_queue), (Stage.RESTARTS,)),
    Policy("podFailurePolicy", ends_job(verdicts.failure_by_pod_failure_rule), (Stage.RESTARTS,)),
    Policy("failure", ends_job(verdicts.failure_for_good), (Stage.RESTARTS,)),
    Policy("invalid pod", ends_job(verdicts.pod_refused_as_invalid), (Stage.RESTARTS,)),
    Policy("launch", launch_policy.report_launch, (Stage.REPLICAS,)),
    Policy("ranks apart", hang_policy.report_ranks_apart, (Stage.REPORTS, Stage.END)),
    Policy("viewer", viewer_links.report_viewers, (Stage.FIELDS,)),
    Policy("progress", progress_status.evaluate, (Stage.FIELDS,)),
    Policy(
        "goodput",
        goodput_status.account_time,
        (Stage.WRITE,),
        internal_fields=goodput_status.INTERNAL_FIELDS,
        parse_status=goodput_status.parse_status,
    ),
)

BY_STAGE: Mapping[Stage, Sequence[Evaluate]] = {
    stage: [policy.evaluate for policy in POLICIES if stage in policy.stages] for stage in Stage
}
INTERNAL_FIELDS = tuple(name for policy in POLICIES for name in policy.internal_fields)
STATUS_PARSERS = tuple(p.parse_status for p in POLICIES if p.parse_status is not None)
POD_REPORTS = (
    PodReport(
        "hold", "in_place", InPlaceReport.decode, instruct=in_place_restart.instruction_for_pod
    ),
    *(policy.pod_report for policy in POLICIES if policy.pod_report is not None),
)
POD_EDITS = tuple(p.pod_edit for p in POLICIES if p.pod_edit is not None)
