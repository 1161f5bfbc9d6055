"""From a user's options for a script to the manifest that runs it.

`Draft` is what can be known before anything heavy is imported; `Draft.text` is the rest.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.api.interpreter_check import Interpreter
from trainyard.api.job_environment import open_and_secret, values_of
from trainyard.api.machine_shares import gpus_each, volume_of, with_threads
from trainyard.api.scripts import python_source
from trainyard.api.scripts.python_source import Source
from trainyard.api.scripts.script_files import ScriptMistake, find
from trainyard.api.scripts.script_shape import ScriptShape
from trainyard.composition.cluster_shape import ClusterShape
from trainyard.embedded.node.containers.gpus import RESOURCE
from trainyard.schema.errors import TrainyardError

if TYPE_CHECKING:
    from trainyard.kinds.shared.script import Mount, Script
    from trainyard.manifest.reader import ReadResult

_MOST_FILES = 50
"""The most modules of a script's own that are read to choose the launcher."""
_NAME_LENGTH = 40
_LAUNCHER_MODULES = {"torchrun": "torch", "deepspeed": "deepspeed", "colossalai": "colossalai"}
"""What has to be installed for a launcher."""


class Draft:
    """A script that is to become a job."""

    def __init__(
        self,
        words: Sequence[str],
        script: ScriptShape,
        options: ClusterShape,
        *,
        on_cluster: bool = False,
        cluster_python: str = "",
        python: str = "",
        instead: str = "",
    ) -> None:
        """Find the script, look through it, and ask its interpreter; raises TrainyardError.

        `cluster_python` is the interpreter of the embedded cluster that is up, and `python` that
        of its replicas, if it is not what the caller's shell would run; `instead` is what helps
        where a module is missing, if not what helps in a shell.
        """
        self.options, self.script, self.on_cluster = options, script, on_cluster
        self.arguments = list(words[1:])
        self._instead = (instead,) if instead else ()
        self.found = find(words[0], is_module=script.is_module, on_cluster=on_cluster)
        if on_cluster and not script.image:
            raise ScriptMistake(
                "name the image that the replicas run on the cluster: --image IMAGE"
            )
        self.source = self._read()
        self.hides_ranks = False
        """Whether it is to see no rank, as when it is started by hand."""
        self.launcher, self.why = self._launcher()
        self.image = self._image()
        self.interpreter: Interpreter | None = None
        if not on_cluster:
            modules = self._needed() if script.is_checked else ()
            self.interpreter = Interpreter(
                options,
                self.image,
                modules=modules,
                folder=self.found.folder,
                env=values_of(script.env),
                cluster_python=cluster_python,
                python=python,
            )

    def _read(self) -> Source:
        if self.found.form == "program" or not self.found.file or self.found.is_archive:
            return Source((), frozenset(), changes_path=True)
        try:
            return python_source.read(Path(self.found.file).read_bytes(), self.found.file)
        except python_source.SourceError:
            if self.script.is_checked:
                raise
            return Source((), frozenset(), changes_path=True)

    def _launcher(self) -> tuple[str, str]:
        """The launcher, and why it was chosen ("" where the user did)."""
        wanted = self.script.launcher
        if self.found.form == "program":
            if wanted not in (None, "none", python_source.PLAIN, python_source.MPI):
                raise ScriptMistake(
                    f"{self.found.target} is no Python script, which the launcher {wanted} needs: "
                    "run it with --launcher none, or plain if it wants ranks"
                )
            return wanted or "none", "" if wanted else "it is no Python script"
        if wanted:
            return wanted, ""
        if not self.found.file or self.found.is_archive:
            why = "it is an archive" if self.found.file else "its source is not here"
            return python_source.DISTRIBUTED, why
        launcher, why = self._launcher_by_imports()
        by_ranks = (python_source.DISTRIBUTED, python_source.PLAIN, python_source.MPI)
        if launcher not in by_ranks or not self._is_one_process():
            return launcher, why
        if not self.source.spawns and python_source.needs_ranks(list(self._sources())):
            return launcher, why
        self.hides_ranks = True
        return python_source.PLAIN, "it is one process"

    def _launcher_by_imports(self) -> tuple[str, str]:
        if self.source.spawns:
            return python_source.PLAIN, "it starts its processes itself"
        sources = list(self._sources())
        wants_mpi = any("mpi4py" in source.imports for source in sources)
        if wants_mpi and not python_source.needs_ranks(sources):
            if self.on_cluster or shutil.which("mpirun"):
                return python_source.MPI, "it imports mpi4py"
            lack = "there is no mpirun, without which mpi4py finds one process in each replica"
            return python_source.PLAIN, f"{lack} (apt-get install openmpi-bin)"
        for source in sources:
            launcher, module = source.launcher
            if module:
                return launcher, f"it imports {module}"
        if (self.script.processes or 1) > 1 or self.script.elastic:
            return python_source.DISTRIBUTED, "that takes several processes, or elastic replicas"
        return python_source.PLAIN, "it imports nothing of torch"

    def _is_one_process(self) -> bool:
        shape = self.script
        if shape.elastic or (shape.replicas or 1) > 1:
            return False
        gpus = self._gpus(1) if shape.gpus is None else shape.gpus
        return (shape.processes or max(gpus, 1)) == 1

    def _sources(self) -> Iterator[Source]:
        """The script, then the modules of its own that it imports."""
        yield self.source
        left, seen = [self.source], set[Path]()
        while left and len(seen) < _MOST_FILES:
            names = left.pop(0).all_imports
            beside = (f / n for f in self._folders() for n in sorted(names))
            files = [p for base in beside for p in _files_of(base) if p not in seen]
            if self.found.form == "module" and not seen:  # siblings, by relative imports
                files += sorted(Path(self.found.file).parent.glob("*.py"))
            for file in files[:_MOST_FILES]:
                seen.add(file)
                try:
                    source = python_source.read(file.read_bytes(), str(file))
                except (TrainyardError, OSError):
                    continue
                left.append(source)
                yield source

    def _folders(self) -> set[Path]:
        """The folders of its own modules."""
        return {Path(self.found.folder), Path(self.found.file).resolve().parent}

    def _needed(self) -> tuple[str, ...]:
        """The modules that have to be installed."""
        if self.found.form == "module" and not self.found.file:
            return (self.found.target.split(".")[0],)
        needed = () if self.source.changes_path else self.source.imports
        launcher = _LAUNCHER_MODULES.get(self.launcher)
        return tuple(dict.fromkeys((*needed, *([launcher] if launcher else ()))))

    def _image(self) -> str:
        from trainyard.kinds.kind_registry import kinds_by_launcher

        default = kinds_by_launcher()[self.launcher].image
        patterns = [pattern for pattern, _ in self.options.images]
        if self.script.image or not patterns:
            return self.script.image or default
        from fnmatch import fnmatchcase

        if any(fnmatchcase(default, pattern) for pattern in patterns):
            return default
        plain = next((p for p in patterns if not re.search(r"[*?\[]", p)), "")
        if plain:
            return plain
        raise ScriptMistake(
            f"the job's image is {default}, which no --image matches: write "
            f"--image '*={self.options.images[0][1]}', or name its image as well: --image NAME"
        )

    def require(self) -> None:
        """Raise InterpreterError where what the script imports is not installed."""
        if self.interpreter is None:
            return
        self.interpreter.facts()
        if self.script.is_checked and self.found.form != "program":
            module = _LAUNCHER_MODULES.get(self.launcher, "")
            by_launcher = {} if module in self.source.imports else {module: self.launcher}
            self.interpreter.require(self.found.target, by_launcher, *self._instead)

    # What it becomes.

    def build(self) -> Script:
        """The script as kinds take it; imports their models."""
        from trainyard.kinds.shared.script import Script, Sizes

        shape = self.script
        sizes = Sizes(*shape.elastic) if shape.elastic else None
        replicas = shape.replicas or (sizes.most if sizes else 1)
        if sizes and not sizes.least <= replicas <= sizes.most:
            raise ScriptMistake(
                f"--replicas {replicas} is not within --elastic {sizes.least}:{sizes.most}"
            )
        gpus = self._gpus(replicas) if shape.gpus is None else shape.gpus
        is_parallel = self.launcher not in ("plain", "none")
        processes = shape.processes or (max(gpus, 1) if is_parallel else 1)
        name = self.interpreter.interpreter_name if self.interpreter else "python"
        env, secret_env = open_and_secret(shape.env)
        return Script(
            name=shape.name or self._name(),
            form=self.found.form,
            target=self.found.target,
            arguments=self.arguments,
            folder="" if self.on_cluster else os.getcwd(),
            launcher=self.launcher,
            replicas=replicas,
            processes=processes,
            gpus=gpus,
            image=self.image,
            interpreter=name if self.found.form != "program" else self.found.interpreter,
            env=env if self.on_cluster else with_threads(env, replicas * processes, gpus),
            secret_env=secret_env,
            mounts=self._mounts(),
            restarts=shape.restarts,
            hides_ranks=self.hides_ranks,
            elastic=sizes,
            queue=shape.queue,
            timeout_seconds=shape.timeout,
        )

    def _name(self) -> str:
        stem = self.found.target.rpartition(".")[2] if self.script.is_module else ""
        stem = stem or Path(self.found.target).stem
        if stem == "__main__":
            stem = Path(self.found.file).absolute().parent.name
        name = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:_NAME_LENGTH].rstrip("-")
        return name if name[:1].isalpha() else f"job-{name}".rstrip("-")

    def _gpus(self, replicas: int) -> int:
        """This machine's, as many for each replica."""
        if self.on_cluster:
            return 0
        pretended = self.options.resources.get(RESOURCE, "")
        return int(pretended) // replicas if pretended.isdigit() else gpus_each(replicas)

    def _mounts(self) -> tuple[Mount, ...]:
        from trainyard.kinds.shared.script import Mount

        found = []
        for source, path in self.script.mounts:
            is_claim = self.on_cluster or source in self.options.volumes
            found.append(Mount(volume_of(source, is_claim=is_claim), path))
        if folder_needed := self._hidden_folder():
            found.append(Mount({"hostPath": {"path": folder_needed}}, folder_needed))
        return tuple(found)

    def _hidden_folder(self) -> str:
        """The script's, where a pod has a folder of its own in its place: in /tmp."""
        if self.on_cluster or self.found.form == "module":
            return ""
        folder = os.path.realpath(self.found.folder)
        is_hidden = folder.startswith("/tmp/") and not os.path.realpath(".").startswith("/tmp/")
        return folder if is_hidden else ""

    def _config_map_content(self) -> str | None:
        """The script's text for a ConfigMap on a cluster; None if it needs none."""
        if not self.on_cluster or not self.found.file or self.found.form == "module":
            return None
        if self.found.is_archive:
            raise ScriptMistake(
                f"{self.found.target} is an archive, and only text is carried to a cluster: put it "
                "into the image, and name it by its absolute path there"
            )
        beside = {path.stem for path in Path(self.found.folder).glob("*.py")}
        beside |= {path.parent.name for path in Path(self.found.folder).glob("*/__init__.py")}
        if own := sorted(beside & self.source.all_imports):
            raise ScriptMistake(
                f"{self.found.target} imports {', '.join(own)} from its folder, but only a script "
                "that is one file is carried to a cluster: put all into the image, and name the "
                "script by its absolute path there, or with -m"
            )
        return Path(self.found.file).read_text(encoding="utf-8")

    def text(self, *, folder: str = "", heading: Sequence[str] = ()) -> str:
        """The manifest; raises TrainyardError. `folder` is where it will lie, if not here."""
        from trainyard.api.scripts import script_objects

        here = os.getcwd()
        elsewhere = here if folder and os.path.realpath(folder) != here else ""
        return script_objects.text(
            self.build(), content=self._config_map_content(), folder=elsewhere, heading=heading
        )

    def read(self) -> ReadResult:
        """The same objects as in `text`, validated; raises TrainyardError."""
        from trainyard.api.scripts import script_objects
        from trainyard.manifest.reader import read_objects

        found = script_objects.objects(self.build(), content=self._config_map_content())
        return read_objects(json.loads(json.dumps(found))).require_jobs()

    def launch_note(self) -> str:
        """One line: how it is launched, and why."""
        script = self.build()
        why = f", because {self.why}" if self.why else ""
        has = [_counted(script.gpus, "GPU")] if script.gpus else []
        has += [_counted(script.processes, "process")] if script.processes > 1 else []
        each = ", each with " if script.replicas > 1 else " with "
        size = _counted(script.replicas, "replica") + (each + " and ".join(has) if has else "")
        return f"{script.name}: launcher {self.launcher}{why}; {size}"

    def misplaced(self, ours: Mapping[str, bool]) -> list[str]:
        """Options of trainyard's that stand behind the script and are passed to it, with their
        values, and that it does not seem to know. `ours`: whether each takes a value."""
        if self.found.form == "program" or not self.found.file or self.found.is_archive:
            return []
        text = Path(self.found.file).read_text(encoding="utf-8", errors="replace")
        found: list[str] = []
        words = iter(self.arguments)
        for word in words:
            if word == "--":
                break
            name, is_whole, _ = word.partition("=")
            if name in ours and not _knows(text, name):
                found.append(word)
                if ours[name] and not is_whole:
                    found += itertools.islice(words, 1)
        return found


def _counted(count: int, noun: str) -> str:
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count} {noun}{ending}"


def _knows(text: str, option: str) -> bool:
    """Whether a script seems to have an option: spelled out, or as what a field or a parameter of
    its is called, from which some libraries make options."""
    name = re.escape(option.lstrip("-").replace("-", "_"))
    field = rf"(?m)^\s*{name}\s*:|\bdef \w+\([^)]*\b{name}\b"
    return re.search(rf"{re.escape(option)}(?![\w-])", text) is not None or (
        re.search(field, text) is not None
    )


def _files_of(base: Path) -> list[Path]:
    """The files of a module, or of a package, of this path without suffix."""
    if (file := base.with_name(f"{base.name}.py")).is_file():
        return [file]
    return sorted(base.glob("*.py")) if (base / "__init__.py").is_file() else []
