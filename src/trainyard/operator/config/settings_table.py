"""Every setting of the operator: flags, environment variables, the settings file, the chart's
values and the reference page are all derived from this table.

A default is that of the attribute in `operator_settings.py`, and must not be repeated here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter

from trainyard.kinds.kind_registry import JOB_KINDS
from trainyard.kinds.shared.job_settings import GangBackend
from trainyard.operator.config.operator_settings import ServiceSettings
from trainyard.operator.config.setting_types import (
    BooleanSetting,
    ChoiceSetting,
    DurationSetting,
    IntegerSetting,
    ListSetting,
    Setting,
    TextSetting,
    is_selector,
)
from trainyard.schema.object_names import is_dns_subdomain, is_plain_label

_PORT = IntegerSetting(1, 65535, "PORT")
_NAMESPACE = TextSetting("the name of a namespace", "NAME", is_plain_label)
_OBJECT = TextSetting("a name of lower-case letters, digits, - and .", "NAME", is_dns_subdomain)
_LABELS = TextSetting("a label selector, such as team=vision,tier!=test", "SELECTOR", is_selector)


def _maps_priority(text: str) -> bool:
    low, _, name = text.partition("=")
    return low.isascii() and low.isdecimal() and int(low) <= 100 and is_dns_subdomain(name)


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return is_dns_subdomain(host) and port.isdecimal() and 0 < int(port) < 65536


_SCOPE = (
    Setting(
        "namespaces",
        ListSetting(_NAMESPACE),
        "Look after the jobs of these namespaces only, with rights in these only. Repeatable.",
        "operator.namespaces",
        flag_override="--namespace",
    ),
    Setting(
        "namespaceSelector",
        _LABELS,
        "Look after the jobs of namespaces with these labels only, as they are at any time.",
        "operator.namespace_selector",
    ),
    Setting(
        "jobSelector",
        _LABELS,
        "Look after jobs and TensorBoards with these labels only.",
        "operator.job_selector",
    ),
    Setting(
        "kinds",
        ListSetting(TextSetting("a kind of job", "KIND", lambda name: name in JOB_KINDS)),
        "Look after jobs of these kinds only. Without one that launches over ssh, and if pods do "
        "not report, no rights to Secrets and ConfigMaps are needed. Repeatable.",
        "operator.kinds",
        flag_override="--kind",
    ),
)
_JOBS = (
    Setting(
        "gangScheduler",
        ChoiceSetting(tuple(GangBackend), GangBackend),
        "What places the pods of jobs with scheduler.t9kScheduler all or none. auto: the first of "
        "Kueue, Volcano, scheduler-plugins and Kubernetes' own that the cluster serves; T9k's "
        "must be named.",
        "operator.lifecycle.gang_backend",
        GangBackend.AUTO,
    ),
    Setting(
        "priorityClasses",
        ListSetting(
            TextSetting("PRIORITY=CLASS, such as 50=urgent", "PRIORITY=CLASS", _maps_priority)
        ),
        "The class of jobs whose priority is at least so high: a WorkloadPriorityClass for Kueue, "
        "else a PriorityClass. Schedulers other than T9k and Kueue know classes only.",
        "operator.lifecycle.priority_classes",
    ),
    Setting(
        "sshPort",
        _PORT,
        "Of the sshd in pods of kinds that launch over ssh. Users other than root may listen above "
        "1023 only. It holds for jobs that come, and for pods that are created, from then on; so "
        "change it while no such job runs.",
        "operator.lifecycle.ssh_port",
    ),
    Setting(
        "masterPort",
        _PORT,
        "Of the rendezvous, on the replica with rank 0.",
        "operator.lifecycle.master_port",
    ),
    Setting(
        "restartDelayInitial",
        DurationSetting(0.1, 3600),
        "Before the first restart of a replica or a job; each further delay is twice as long.",
        "operator.lifecycle.backoff_base_seconds",
    ),
    Setting(
        "restartDelayMax",
        DurationSetting(0, 86400),
        "No delay is longer.",
        "operator.lifecycle.backoff_max_seconds",
    ),
    Setting(
        "restartDelayReset",
        DurationSetting(0, 86400),
        "What ran for so long starts again with the first delay.",
        "operator.lifecycle.backoff_reset_seconds",
    ),
    Setting(
        "elasticSettle",
        DurationSetting(0, 3600),
        "An elastic job that launches over ssh waits until nobody has joined for so long.",
        "operator.lifecycle.elastic_settle_seconds",
    ),
    Setting(
        "forceDeleteAfter",
        DurationSetting(1, 86400),
        "A pod that is still there so long after its grace period is deleted by force.",
        "operator.lifecycle.force_delete_seconds",
    ),
    Setting(
        "clusterDomain",
        TextSetting("a DNS domain", "DOMAIN", is_dns_subdomain),
        "Of the cluster's DNS.",
        "operator.lifecycle.cluster_domain",
        default_source="that of this pod's resolv.conf, else cluster.local",
    ),
    Setting(
        "tensorboards",
        BooleanSetting(),
        "Serve TensorBoards; false: another controller of the cluster does.",
        "operator.serves_tensorboards",
    ),
    Setting(
        "tensorboardImage",
        TextSetting("an image", "IMAGE"),
        "For TensorBoards that name none.",
        "operator.lifecycle.boards.image",
    ),
)
_WORK = (
    Setting(
        "workers",
        IntegerSetting(1, 1024),
        "Jobs that may be worked on at once.",
        "operator.workers",
    ),
    Setting(
        "parallelWrites",
        IntegerSetting(1, 1024),
        "Writes of one job that may be under way at once.",
        "operator.parallel_writes",
    ),
    Setting(
        "retryDelayInitial",
        DurationSetting(0.01, 60),
        "Before a job that met an error is looked at again; each further delay is twice as long.",
        "operator.retry_min",
    ),
    Setting(
        "retryDelayMax",
        DurationSetting(0.01, 3600),
        "No such delay is longer.",
        "operator.retry_max",
    ),
    Setting(
        "apiTimeout",
        DurationSetting(1, 600),
        "For the answer to a request to the API server.",
        "api.timeout_seconds",
    ),
    Setting(
        "apiRequestsAtOnce",
        IntegerSetting(1, 10_000),
        "Requests to the API server that may be under way at once, beside watches and the Lease.",
        "api.at_once",
    ),
    Setting(
        "apiRequestsPerSecond",
        IntegerSetting(0, 100_000),
        "Requests a second to the API server, beside the Lease; after a pause as many may be sent "
        "together. 0: any number; the API server's own priority and fairness is obeyed anyway.",
        "api.per_second",
    ),
)
_LEASE = (
    Setting(
        "leaderElect",
        BooleanSetting(),
        "Whether several may run, of which one works.",
        default=True,
    ),
    Setting(
        "leaseNamespace",
        _NAMESPACE,
        "Where the Lease is kept.",
        "lease.namespace",
        default_source="the one namespace that is looked after, else that of this pod, the first "
        "of several namespaces or, outside a cluster, default",
    ),
    Setting(
        "leaseName",
        _OBJECT,
        "Operators with the same Lease stand by for each other, so they must look after the same.",
        "lease.name",
        default_source="trainyard-controller, followed by the one namespace that is looked after, "
        "or by a hash of several namespaces, selectors and kinds",
    ),
    Setting(
        "leaseDuration",
        DurationSetting(1, 3600),
        "Others take over so long after the last renewal that they saw.",
        "lease.duration",
    ),
    Setting(
        "leaseRenewDeadline",
        DurationSetting(0.5, 3600),
        "A leader that could not renew the Lease for so long stops all writes.",
        "lease.renew_deadline",
    ),
    Setting(
        "leaseRetryPeriod",
        DurationSetting(0.1, 600),
        "Between two attempts to get or to renew the Lease.",
        "lease.retry_period",
    ),
)
_CHANNEL = (
    Setting(
        "channel",
        BooleanSetting(),
        "Let pods report how they do, where there is an address for it.",
        "operator.has_channel",
    ),
    Setting(
        "channelAddress",
        TextSetting("a host and a port", "HOST:PORT", _is_address),
        "What pods are told to report to, such as trainyard-operator-reports.trainyard.svc:7443. "
        "Without one they do not report.",
        "operator.lifecycle.channel_address",
    ),
    Setting("channelPort", _PORT, "On which reports are listened for.", "channel.port"),
    Setting(
        "channelEndpoint",
        TextSetting("an address", "ADDRESS"),
        "This process's address: while it leads, the Service that channelAddress names is pointed "
        "there. Without one, the Service has to find the leader by itself.",
        "channel.endpoint",
    ),
    Setting(
        "progressInterval",
        DurationSetting(0.1, 3600),
        "How often the progress that pods report is written into a job's status for its own sake.",
        "operator.lifecycle.progress_seconds",
    ),
)
_PROCESS = (
    Setting("host", TextSetting("an address", "ADDRESS"), "Address of the endpoints.", "host"),
    Setting(
        "port",
        IntegerSetting(0, 65535, "PORT"),
        "Port of /healthz, /readyz and /metrics; 0 picks a free one.",
        "port",
    ),
    Setting(
        "metricsSecure",
        BooleanSetting(),
        "Serve /metrics on metricsPort only, over TLS, to whom the API server lets get that path.",
        "metrics_secure",
    ),
    Setting(
        "metricsPort",
        IntegerSetting(0, 65535, "PORT"),
        "Port of metricsSecure; 0 picks a free one.",
        "metrics_port",
    ),
    Setting(
        "metricsCertificates",
        TextSetting("a path", "FOLDER"),
        "Of metricsSecure: tls.crt and tls.key, as a Secret has them. Read anew when they change.",
        "metrics_certificates",
        default_source="one that the process makes for itself, which nobody can verify",
    ),
    Setting(
        "logLevel",
        ChoiceSetting(("debug", "info", "warning", "error")),
        "What is logged: this, and what is worse.",
        "log_level",
    ),
    Setting(
        "logFormat",
        ChoiceSetting(("text", "json")),
        "json: one object a line, with the job that it is about.",
        "log_format",
    ),
    Setting(
        "jobMetrics",
        BooleanSetting(),
        "Give /metrics a series for each job, by its name.",
        "has_job_series",
    ),
    Setting(
        "record",
        TextSetting("a path", "FILE"),
        "Keep what every pass saw, decided and did; at 32 MiB the file becomes FILE.1.",
        "record",
    ),
)


def _with_defaults(settings: tuple[Setting, ...]) -> tuple[Setting, ...]:
    known = ServiceSettings()
    return tuple(
        each if each.default is not None else replace(each, default=attrgetter(each.place)(known))
        for each in settings
    )


GROUPS: Mapping[str, tuple[Setting, ...]] = {
    "What is looked after": _with_defaults(_SCOPE),
    "Jobs": _with_defaults(_JOBS),
    "Work, and requests to the API server": _with_defaults(_WORK),
    "Leader election": _with_defaults(_LEASE),
    "Reports of pods": _with_defaults(_CHANNEL),
    "The process": _with_defaults(_PROCESS),
}
"""Settings by the heading under which they are documented."""
SETTINGS: Mapping[str, Setting] = {
    setting.name: setting for group in GROUPS.values() for setting in group
}
