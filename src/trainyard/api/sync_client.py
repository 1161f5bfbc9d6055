"""The client for those who do not await. Made by tools/sync_client.py; do not edit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from trainyard.api.blocking import Blocking
from trainyard.api.connection import JobName, Jobs
from trainyard.api.diagnosis_inputs import Explanation
from trainyard.api.job_manifests import Manifest
from trainyard.api.job_queries import Executed, LogLine
from trainyard.api.queues import Objects
from trainyard.api.recorded_jobs import Recorded
from trainyard.api.replica_usage import Usages
from trainyard.client.job_comparison import Comparison
from trainyard.client.job_view import Job
from trainyard.client.metrics_client import NodeUsage
from trainyard.client.object_views import Object
from trainyard.client.provenance_lookup import Past


class Client(Blocking):
    """Jobs of one cluster, as `AsyncClient` has them, in calls that wait for their results.

    They may be made in any thread, and where an event loop runs, as in a notebook; Ctrl-C ends
    them. `close()`, or the end of a `with`, ends the connection.
    """

    def submit(
        self,
        manifest: Manifest | Iterable[Manifest],
        *,
        replace: bool = False,
        debug: bool = False,
        volumes: Mapping[str, str] = MappingProxyType({}),
        images: tuple[str, str] | Iterable[tuple[str, str]] = (),
        snapshot: bool = False,
    ) -> Jobs:
        """Create the jobs of a manifest, and before them what lies beside them there.

        With `replace`, jobs of the same names are deleted first; with `debug` they are in debug
        mode, in which replicas wait instead of training. On the embedded cluster `volumes`
        are folders that stand for claims, by the claim, and `images` pairs of a pattern of images
        and the Python environment that stands for them; with `snapshot` the jobs run a copy of
        their working folder's code, which later edits do not reach. Raises InvalidManifest with
        every problem; warnings are told by Python's `warnings`.
        """
        return self._call(
            self._client.submit(
                manifest,
                replace=replace,
                debug=debug,
                volumes=volumes,
                images=images,
                snapshot=snapshot,
            )
        )

    def delete(self, jobs: JobName | Iterable[JobName], *, missing_ok: bool = False) -> Jobs:
        """Delete jobs, and with them all that they own; they may take their time to end.

        Raises JobNotFound, and deletes none, if one does not exist, unless `missing_ok`.
        """
        return self._call(self._client.delete(jobs, missing_ok=missing_ok))

    def wait_until_gone(
        self, jobs: JobName | Iterable[JobName], *, timeout: float | None = 300.0
    ) -> None:
        """Until deleted jobs and all of their pods are gone; raises WaitTimeout after `timeout`
        seconds. Of what `delete` returned the pods are waited for though the job is gone; a name
        that no job has is gone.
        """
        return self._call(self._client.wait_until_gone(jobs, timeout=timeout))

    def pause(self, job: JobName) -> bool:
        """Pause a job: its pods end gracefully, the job stays; False if it was paused already."""
        return self._call(self._client.pause(job))

    def resume(self, job: JobName) -> bool:
        """Go on with a paused job, at no cost of restarts; False if it was not paused."""
        return self._call(self._client.resume(job))

    def scale(self, job: JobName, replicas: int) -> int | None:
        """Change how many replicas an elastic job should have; how many it should have had
        before, None if that was not said.

        Raises CommandError for a job that is not elastic, and for a size beyond its bounds.
        """
        return self._call(self._client.scale(job, replicas))

    def list(
        self, kinds: str | Iterable[str] = (), *, selector: str = "", all_namespaces: bool = False
    ) -> Jobs:
        """The jobs of the namespace, oldest first: of all kinds, or of some (`pj`), and with
        labels as `team=a`, if wished.
        """
        return self._call(
            self._client.list(kinds, selector=selector, all_namespaces=all_namespaces)
        )

    def watch(
        self, kinds: str | Iterable[str] = (), *, selector: str = "", all_namespaces: bool = False
    ) -> Iterator[Jobs]:
        """The jobs that `list` has, and then, again and again, those that have changed.

        One that was deleted comes a last time, with `is_deleted`. This never ends by itself.
        """
        return self._iterate(
            self._client.watch(kinds, selector=selector, all_namespaces=all_namespaces)
        )

    def get(self, job: JobName) -> Job:
        """A job as it is now, with its pods; raises JobNotFound."""
        return self._call(self._client.get(job))

    def owners(self) -> Mapping[str, str]:
        """Whose each namespace is, where several people share a cluster; else empty."""
        return self._call(self._client.owners())

    def logs_at(self, job: JobName) -> str:
        """The folders of this machine, as a pattern, in which the logs of a job are; empty for a
        cluster elsewhere.
        """
        return self._call(self._client.logs_at(job))

    def wait(self, job: JobName, until: str = "end", *, timeout: float | None = None) -> Job:
        """The job, once it has come to a point: `end` (it has succeeded), `phase=Running` or
        another, `condition=Completed` or `condition=TYPE=STATUS`.

        Raises JobFailed when it cannot come there any more, because it has failed, ended otherwise
        or was deleted, and WaitTimeout after `timeout` seconds.
        """
        return self._call(self._client.wait(job, until, timeout=timeout))

    def explain(self, job: JobName) -> Explanation:
        """Why a job is pending, restarting, failed or stuck, and what to do: `causes`, the
        gravest first; of a job that has failed a `card` that says who is to blame.
        """
        return self._call(self._client.explain(job))

    def logs(
        self,
        job: JobName,
        *,
        follow: bool = False,
        replica: str = "",
        container: str = "",
        tail: int | None = None,
        since: float | None = None,
        previous: bool = False,
        timestamps: bool = False,
    ) -> Iterator[LogLine]:
        """The lines that the replicas have written; with `follow`, until the job has ended.

        Of one `replica` (`worker-0`) and `container` or of all that train; the last `tail` lines,
        or those of the last `since` seconds; with `previous` of the attempt before.
        """
        return self._iterate(
            self._client.logs(
                job,
                follow=follow,
                replica=replica,
                container=container,
                tail=tail,
                since=since,
                previous=previous,
                timestamps=timestamps,
            )
        )

    def events(
        self, job: JobName, *, follow: bool = False, warnings: bool = False
    ) -> Iterator[Object]:
        """The Events about a job and all that it owns, oldest first; with `follow`, also those
        to come, for as long as the caller asks; with `warnings`, no others.
        """
        return self._iterate(self._client.events(job, follow=follow, warnings=warnings))

    def running_replica(
        self, job: JobName, *, replica: str = "", container: str = "", timeout: float = 300.0
    ) -> str:
        """The replica of this name, or that of rank 0, once its container runs.

        Raises CommandError when it never will, or not within `timeout` seconds.
        """
        return self._call(
            self._client.running_replica(job, replica=replica, container=container, timeout=timeout)
        )

    def exec(
        self,
        job: JobName,
        command: str | Sequence[str],
        *,
        replica: str = "",
        container: str = "",
        stdin: bytes = b"",
    ) -> Executed:
        """Run a command in a replica, of rank 0 unless another is named, to its end.

        A text is split into words as a shell would; no shell runs it.
        """
        return self._call(
            self._client.exec(job, command, replica=replica, container=container, stdin=stdin)
        )

    def stacks(self, job: JobName, *, all_threads: bool = False) -> str:
        """Where every rank of a job stands, equal stacks once and the odd ones first: the main
        thread of each, or all. Of a job that runs no more, what was kept when it hung.

        Raises CommandError where there are none.
        """
        return self._call(self._client.stacks(job, all_threads=all_threads))

    def usage(self, job: JobName | None = None, *, all_namespaces: bool = False) -> Usages:
        """What the replicas use that run, by job and replica: those of a job, or of all jobs of
        the namespace.

        Raises CommandError where the cluster has no metrics API.
        """
        return self._call(self._client.usage(job, all_namespaces=all_namespaces))

    def node_usage(self) -> NodeUsage | None:
        """What the cluster's only node uses, of what it has; None where there are several.

        Raises KubeError where one may not ask for it.
        """
        return self._call(self._client.node_usage())

    def past(self, job: Recorded) -> Past:
        """A job with what was recorded of it: one that is there, else the last of that name which
        was submitted on this machine.

        `NAME~1` is the one before, and so on; the name of a record is the job of that record.
        Starts no cluster. Raises JobNotFound, or CommandError where none is recorded either.
        """
        return self._call(self._client.past(job))

    def diff(self, a: Recorded, b: Recorded) -> Comparison:
        """What differs between two jobs: in what was asked for, in code, packages and interpreter,
        and in how they ended. Jobs are named as for `past`.
        """
        return self._call(self._client.diff(a, b))

    def rerun(
        self, job: Recorded, changes: Mapping[str, Any] = MappingProxyType({}), *, name: str = ""
    ) -> Job:
        """Submit what a job did once more, under a new name; jobs are named as for `past`.

        `changes` are values by the path of a field, as `{"spec.replicaSpecs[0].replicas": 4}`;
        without `name` the new job has the old one's with a number. It runs the code that was copied
        then, if it was, else the present one. What is different by now, in code, interpreter or
        packages, is told by Python's `warnings`. Raises InvalidManifest, and CommandError for a
        path that is not there.
        """
        return self._call(self._client.rerun(job, changes, name=name))

    def queues(self) -> Objects:
        """All Queues, by name."""
        return self._call(self._client.queues())

    def queue(self, name: str) -> Object:
        """One Queue; raises CommandError where there is none of the name."""
        return self._call(self._client.queue(name))

    def create_queue(
        self,
        name: str,
        *,
        quota: Mapping[str, str] = MappingProxyType({}),
        priority: int | None = None,
        max_duration: str | None = None,
        closed: bool = False,
    ) -> Object:
        """Create a Queue.

        `quota` limits resources, as `{"nvidia.com/gpu": "8"}`; `priority` is 0 to 100, of which
        higher goes first; pods older than `max_duration` (`1d12h`) are ended; while it is `closed`,
        nothing starts through it. Raises CommandError when it breaks a rule, or exists.
        """
        return self._call(
            self._client.create_queue(
                name, quota=quota, priority=priority, max_duration=max_duration, closed=closed
            )
        )

    def close_queue(self, name: str) -> None:
        """Let nothing more start through a Queue; what runs goes on."""
        return self._call(self._client.close_queue(name))

    def open_queue(self, name: str) -> None:
        """Let jobs start through a closed Queue again."""
        return self._call(self._client.open_queue(name))

    def delete_queue(self, name: str) -> None:
        """Delete a Queue; jobs in it keep running."""
        return self._call(self._client.delete_queue(name))
