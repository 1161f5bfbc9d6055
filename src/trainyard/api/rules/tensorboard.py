"""Rules of TensorBoard, embedded in a job or alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainyard.api import pod_schema
from trainyard.api.names import is_dns_label
from trainyard.api.problems import Path, Problem, error, warning
from trainyard.api.tensorboard import TensorBoard, TensorBoardSpec

_FILESET = re.compile(r"t9k://(pvc/[^/]+(/.*)?|minio/[^/]+/[^/]+(/.*)?)\Z")


def check(board: TensorBoard) -> list[Problem]:
    """Every problem that the schema does not show."""
    problems = list(check_spec(board.spec, ("spec",)))
    name = board.metadata.name or f"{board.metadata.generate_name}x"
    if not is_dns_label(name):
        message = f"'{name[:80]}' cannot be a host name; use lower-case letters, digits and '-'"
        problems.append(error(("metadata", "name"), message))
    return problems


def check_spec(spec: TensorBoardSpec, path: Path) -> Iterator[Problem]:
    """Problems of a TensorBoardSpec at ``path``."""
    for index, fileset in enumerate(spec.training_log_filesets):
        if not _FILESET.match(fileset):
            message = (
                f"'{fileset[:80]}' is no fileset; write t9k://pvc/<claim>/<path> or "
                "t9k://minio/<secret>/<bucket>/<path>"
            )
            yield error((*path, "trainingLogFilesets", index), message)
    logs = spec.log_dir
    if not spec.training_log_filesets and not (logs and (logs.pvc or logs.s3 or logs.http)):
        yield warning(path, "names no logs; set logDir")
    for index, uri in enumerate(logs.s3.uri if logs and logs.s3 else ()):
        if not uri.endswith("/"):
            message = f"'{uri[:80]}' is a prefix; end it in '/' to name a folder"
            yield warning((*path, "logDir", "s3", "uri", index), message)
    if spec.run_mode is not None:
        yield warning((*path, "runMode"), "is an old field and ignored; use suspend")
    if spec.resources is not None:
        yield from pod_schema.check_resources(spec.resources, (*path, "resources"))
