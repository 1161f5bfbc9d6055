"""The models of our kinds with all that users write in them, by their names alone.

For type checkers, and for `trainyard.NAME`; nothing of ours imports it, since it imports all of
them.
"""

from __future__ import annotations

from trainyard.kinds.colossalai.spec import ColossalAIJob as ColossalAIJob
from trainyard.kinds.colossalai.spec import ColossalAIJobSpec as ColossalAIJobSpec
from trainyard.kinds.colossalai.spec import ColossalReplicaSpec as ColossalReplicaSpec
from trainyard.kinds.colossalai.spec import ColossalRunPolicy as ColossalRunPolicy
from trainyard.kinds.colossalai.spec import SSHConfig as SSHConfig
from trainyard.kinds.colossalai.spec import TorchConfig as TorchConfig
from trainyard.kinds.deepspeed.spec import DeepSpeedConfig as DeepSpeedConfig
from trainyard.kinds.deepspeed.spec import DeepSpeedJob as DeepSpeedJob
from trainyard.kinds.deepspeed.spec import DeepSpeedJobSpec as DeepSpeedJobSpec
from trainyard.kinds.deepspeed.spec import RunType as RunType
from trainyard.kinds.deepspeed.spec import Worker as Worker
from trainyard.kinds.generic.spec import GenericJob as GenericJob
from trainyard.kinds.generic.spec import GenericJobSpec as GenericJobSpec
from trainyard.kinds.generic.spec import GenericReplicaSpec as GenericReplicaSpec
from trainyard.kinds.generic.spec import GenericRunPolicy as GenericRunPolicy
from trainyard.kinds.generic.spec import ServiceOption as ServiceOption
from trainyard.kinds.generic.spec import ServicePort as ServicePort
from trainyard.kinds.podgroup.spec import PodGroup as PodGroup
from trainyard.kinds.podgroup.spec import PodGroupSpec as PodGroupSpec
from trainyard.kinds.podgroup.spec import Role as Role
from trainyard.kinds.pytorch.spec import PyTorchReplicaSpec as PyTorchReplicaSpec
from trainyard.kinds.pytorch.spec import PyTorchRunPolicy as PyTorchRunPolicy
from trainyard.kinds.pytorch.spec import PyTorchTrainingJob as PyTorchTrainingJob
from trainyard.kinds.pytorch.spec import PyTorchTrainingJobSpec as PyTorchTrainingJobSpec
from trainyard.kinds.pytorch.spec import TorchrunConfig as TorchrunConfig
from trainyard.kinds.queue.spec import Queue as Queue
from trainyard.kinds.queue.spec import QueueSpec as QueueSpec
from trainyard.kinds.queue.spec import Quota as Quota
from trainyard.kinds.shared.failure_policy.failure_policy_spec import OnExitCodes as OnExitCodes
from trainyard.kinds.shared.failure_policy.failure_policy_spec import (
    OnPodCondition as OnPodCondition,
)
from trainyard.kinds.shared.failure_policy.failure_policy_spec import (
    PodFailurePolicy as PodFailurePolicy,
)
from trainyard.kinds.shared.failure_policy.failure_policy_spec import (
    PodFailureRule as PodFailureRule,
)
from trainyard.kinds.shared.hang.hang_spec import Hang as Hang
from trainyard.kinds.shared.node_check.node_check_spec import NodeCheck as NodeCheck
from trainyard.kinds.shared.run_policy import DebugMode as DebugMode
from trainyard.kinds.shared.run_policy import Elastic as Elastic
from trainyard.kinds.shared.run_policy import PauseMode as PauseMode
from trainyard.kinds.shared.run_policy import QueueOnly as QueueOnly
from trainyard.kinds.shared.run_policy import ReplicaDebugSet as ReplicaDebugSet
from trainyard.kinds.shared.run_policy import ReplicaRestartPolicy as ReplicaRestartPolicy
from trainyard.kinds.shared.run_policy import ResumeSpec as ResumeSpec
from trainyard.kinds.shared.run_policy import RunMode as RunMode
from trainyard.kinds.shared.run_policy import SchedulePolicy as SchedulePolicy
from trainyard.kinds.shared.run_policy import SshRunPolicy as SshRunPolicy
from trainyard.kinds.shared.run_policy import T9kScheduler as T9kScheduler
from trainyard.kinds.shared.run_policy import UnrankedSchedulePolicy as UnrankedSchedulePolicy
from trainyard.kinds.shared.run_policy import UnrankedT9kScheduler as UnrankedT9kScheduler
from trainyard.kinds.tensorboard.spec import HttpLogs as HttpLogs
from trainyard.kinds.tensorboard.spec import LogDir as LogDir
from trainyard.kinds.tensorboard.spec import PvcLogs as PvcLogs
from trainyard.kinds.tensorboard.spec import S3Logs as S3Logs
from trainyard.kinds.tensorboard.spec import SecretReference as SecretReference
from trainyard.kinds.tensorboard.spec import TensorBoard as TensorBoard
from trainyard.kinds.tensorboard.spec import TensorBoardScheduler as TensorBoardScheduler
from trainyard.kinds.tensorboard.spec import TensorBoardSpec as TensorBoardSpec
from trainyard.schema.meta import ObjectMeta as ObjectMeta
from trainyard.schema.meta import OwnerReference as OwnerReference
