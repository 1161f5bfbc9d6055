"""A file with jobs of other systems as a manifest of ours."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import yaml

from trainyard.conversion import (
    batchjob,
    jobset,
    mpi,
    pytorchjob,
    slurm,
    torchx,
    training_operator_jobs,
    trainjob,
    volcano,
)
from trainyard.conversion.field_tracking import CannotConvert, Fields, Note
from trainyard.manifest import foreign_kinds
from trainyard.manifest.reader import as_problem, object_name
from trainyard.schema import yaml_parser
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import InvalidManifest
from trainyard.schema.parsed_yaml import Parsed
from trainyard.schema.problems import Problem, error, warning

_CONVERTERS = {
    foreign_kinds.PYTORCH: pytorchjob.convert,
    foreign_kinds.MPI: mpi.convert,
    foreign_kinds.TF: training_operator_jobs.convert_tf,
    foreign_kinds.JAX: training_operator_jobs.convert_jax,
    foreign_kinds.XGBOOST: training_operator_jobs.convert_xgboost,
    foreign_kinds.VOLCANO: volcano.convert,
    foreign_kinds.JOBSET: jobset.convert,
    foreign_kinds.BATCH: batchjob.convert,
}


@dataclass(frozen=True, slots=True)
class ForeignConversion:
    """The manifest, and the notes on fields of the original."""

    text: str
    notes: tuple[Problem, ...]


def convert(text: str, file: str = "") -> ForeignConversion | None:
    """The manifest of a file that holds jobs of other systems; None for a file without any.

    Other objects stay as they are. Raises InvalidManifest with what cannot be converted.
    """
    if foreign_kinds.is_sbatch_script(text):
        return _script(text, file)
    documents = list(yaml_parser.parse(torchx.request(text)))
    objects = [(each, *found) for each in documents for found in _objects(each.data)]
    if not any(foreign_kinds.title_of(obj) for _, obj, _ in objects):
        return None
    if broken := [as_problem(mistake, file) for each in documents for mistake in each.mistakes]:
        raise InvalidManifest(broken)
    runtimes = {
        (str(obj["kind"]), str(obj["metadata"].get("name"))): obj
        for _, obj, _ in objects
        if obj.get("kind") in foreign_kinds.RUNTIMES and isinstance(obj.get("metadata"), dict)
    }
    made: list[Any] = []
    notes: list[Problem] = []
    errors: list[Problem] = []
    for parsed, obj, prefix in objects:
        try:
            new, found = _converted(obj, runtimes)
        except CannotConvert as problem:
            found, new = [], []
            errors.append(_placed(error((), str(problem)), (), parsed, prefix, obj, file))
        made += new
        notes += [
            _placed(warning(note.path, note.text), note.path, parsed, prefix, obj, file)
            for note in found
        ]
    if errors:
        raise InvalidManifest(errors)
    notes.sort(key=lambda note: (note.line, note.column))
    return ForeignConversion(_dumped(made), tuple(notes))


def _objects(data: Any, prefix: tuple[str | int, ...] = ()) -> list[tuple[Any, tuple[Any, ...]]]:
    if not isinstance(data, dict):
        return []
    items = data.get("items")
    if str(data.get("kind", "")).endswith("List") and isinstance(items, list):
        return [each for n, item in enumerate(items) for each in _objects(item, ("items", n))]
    return [(data, prefix)]


def _converted(
    obj: dict[str, Any], runtimes: dict[tuple[str, str], dict[str, Any]]
) -> tuple[list[Any], Sequence[Note]]:
    key = foreign_kinds.group_and_kind(obj)
    if key[1] in foreign_kinds.RUNTIMES:
        return [], []  # its notes come with the job that uses it
    if key != foreign_kinds.TRAIN and key not in _CONVERTERS:
        return [obj], []
    fields = Fields.of(copy.deepcopy(obj))
    try:
        if key == foreign_kinds.TRAIN:
            made = trainjob.convert(fields, runtimes)
        else:
            made = _CONVERTERS[key](fields)
        fields.note_remaining()
    except (AttributeError, TypeError, ValueError, LookupError) as problem:
        raise CannotConvert(f"its fields have other types than this kind's: {problem}") from problem
    return made, list(dict.fromkeys(fields.notes))  # several replica types may share a field


def _placed(
    problem: Problem,
    path: tuple[Any, ...],
    parsed: Parsed,
    prefix: tuple[Any, ...],
    obj: dict[str, Any],
    file: str,
) -> Problem:
    line, column = parsed.locate((*prefix, *path))
    return replace(problem, file=file, line=line, column=column, object=object_name(obj))


def _script(text: str, file: str) -> ForeignConversion:
    try:
        made, notes = slurm.convert(text)
    except (CannotConvert, ValueError) as problem:
        raise InvalidManifest([replace(error((), str(problem)), file=file)]) from problem
    problems = [replace(warning((), text), file=file, line=line) for line, text in notes]
    return ForeignConversion(_dumped(made), tuple(problems))


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def _string(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _string)


def _dumped(objects: Sequence[Any]) -> str:
    text: str = yaml.dump_all(
        objects, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000
    )
    return text
