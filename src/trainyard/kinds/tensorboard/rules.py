"""Rules of TensorBoard, embedded in a job or alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainyard.kinds.shared.child_names import board_name
from trainyard.kinds.tensorboard.spec import LogDir, TensorBoard, TensorBoardSpec, inside_claim
from trainyard.schema import kubernetes_schemas
from trainyard.schema.object_names import MAX_LABEL, is_dns_label
from trainyard.schema.problems import Path, Problem, error, warning

_FILESET = re.compile(r"t9k://(pvc/[^/]+(/.*)?|minio/[^/]+/[^/]+(/.*)?)\Z")


def check(board: TensorBoard) -> list[Problem]:
    """Every problem that the schema does not show."""
    problems = list(check_spec(board.spec, ("spec",)))
    name = board.metadata.name or f"{board.metadata.generate_name}x"
    if not is_dns_label(name):
        message = f"'{name[:80]}' cannot be a host name; use lower-case letters, digits and '-'"
        problems.append(error(("metadata", "name"), message))
    elif not is_dns_label(board_name(name)):
        excess = len(board_name(name)) - MAX_LABEL
        message = f"makes the host name '{board_name(name)}', which is {excess} too long"
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
    logs = spec.log_dir or LogDir()
    if not spec.training_log_filesets and not (logs.pvc or logs.s3 or logs.http):
        yield warning(path, "names no logs; set logDir")
    yield from _check_logs(logs, (*path, "logDir"))
    if spec.run_mode is not None:
        yield warning((*path, "runMode"), "is an old field and ignored; use suspend")
    if spec.resources is not None:
        yield from kubernetes_schemas.check_part(
            spec.resources, "ResourceRequirements", (*path, "resources")
        )


def _check_logs(logs: LogDir, path: Path) -> Iterator[Problem]:
    """Warnings only: what cannot be shown does not keep a job from training."""
    for index, claim in enumerate(logs.pvc):
        for number, folder in enumerate(claim.sub_path):
            if inside_claim(folder) is None:
                message = f"'{folder[:80]}' leaves the claim and is not shown"
                yield warning((*path, "pvc", index, "subPath", number), message)
    for index, uri in enumerate(logs.s3.uri if logs.s3 else ()):
        message = ""
        if not uri.startswith("s3://"):
            message = f"'{uri[:80]}' is no address s3://BUCKET/PREFIX/ and is not shown"
        elif not uri.endswith("/"):
            message = f"'{uri[:80]}' is a prefix; end it in '/' to name a folder"
        if message:
            yield warning((*path, "s3", "uri", index), message)
    for index, url in enumerate(logs.http.url if logs.http else ()):
        if not url.startswith(("http://", "https://")):
            message = f"'{url[:80]}' is no address http://… or https://… and is not shown"
            yield warning((*path, "http", "url", index), message)
