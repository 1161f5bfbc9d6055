"""What a package that brings a kind of its own imports, under names that stay.

Everything else in this room may move. `Kind`, for the row in the package's `__init__`, is in
`trainyard.kinds.kind`, because the row must import next to nothing. Nothing of ours imports this
module: it brings pydantic and all that builds pods.
"""

from __future__ import annotations

from trainyard.kinds.kind import Kind as Kind
from trainyard.kinds.shared import job_rules as job_rules
from trainyard.kinds.shared.job import Job as Job
from trainyard.kinds.shared.job_settings import Settings as Settings
from trainyard.kinds.shared.pods import pod_assembly as pod_assembly
from trainyard.kinds.shared.pods import pod_template_rules as pod_template_rules
from trainyard.kinds.shared.run_policy import MANAGED_BY as MANAGED_BY
from trainyard.kinds.shared.run_policy import RUN_MODE as RUN_MODE
from trainyard.kinds.shared.run_policy import RUN_POLICY as RUN_POLICY
from trainyard.kinds.shared.run_policy import SCHEDULER as SCHEDULER
from trainyard.kinds.shared.run_policy import RunMode as RunMode
from trainyard.kinds.shared.run_policy import RunPolicy as RunPolicy
from trainyard.kinds.shared.run_policy import SchedulePolicy as SchedulePolicy
from trainyard.kinds.shared.workload import Manifest as Manifest
from trainyard.kinds.shared.workload import ReplicaKey as ReplicaKey
from trainyard.kinds.shared.workload import ReplicaType as ReplicaType
from trainyard.kinds.shared.workload import RestartPolicy as RestartPolicy
from trainyard.kinds.shared.workload import Scope as Scope
from trainyard.kinds.shared.workload import Workload as Workload
from trainyard.kinds.shared.workload_factory import ReplicaStart as ReplicaStart
from trainyard.kinds.shared.workload_factory import WorkloadFactory as WorkloadFactory
from trainyard.schema.model import Count as Count
from trainyard.schema.model import Items as Items
from trainyard.schema.model import Model as Model
from trainyard.schema.model import Template as Template
from trainyard.schema.problems import Path as Path
from trainyard.schema.problems import Problem as Problem
from trainyard.schema.problems import error as error
from trainyard.schema.problems import warning as warning
