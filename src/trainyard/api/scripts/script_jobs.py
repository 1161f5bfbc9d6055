"""Scripts from Python: the manifest that `trainyard init` proposes for them, run like any other."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Unpack

from trainyard.api.options import ScriptOptions, check, words
from trainyard.api.scripts.script_drafts import Draft
from trainyard.api.scripts.script_shape import ScriptShape
from trainyard.composition.cluster_shape import ClusterShape

_SUFFIXES = (".py", ".sh", ".bash")


def is_script(what: Any, options: ScriptOptions) -> bool:
    """Whether the path of a script is given, or the name of a module, not a manifest."""
    if not isinstance(what, str | os.PathLike):
        return False
    text = os.fspath(what)
    return options.get("module", False) or ("\n" not in text and text.endswith(_SUFFIXES))


def propose(
    script: str | os.PathLike[str],
    args: Sequence[Any] = (),
    *,
    for_cluster: bool = False,
    **options: Unpack[ScriptOptions],
) -> str:
    """The manifest of a job that runs a script, as `trainyard init` prints it, without running it.

    With `for_cluster` it is for a Kubernetes cluster: it needs an `image`, and brings the script in
    a ConfigMap. Raises CommandError, or Error with the reason, where it cannot be run.
    """
    return drafted(script, args, options, for_cluster=for_cluster).text()


def drafted(
    script: str | os.PathLike[str],
    args: Sequence[Any],
    options: ScriptOptions,
    cluster: ClusterShape | None = None,
    *,
    for_cluster: bool,
    python: str = "",
) -> Draft:
    """A script that is to become a job on a cluster of this shape; `python` is what runs it there,
    if that is not what the caller's shell would run."""
    check(options, ScriptOptions)
    shape = ScriptShape(
        is_module=options.get("module", False),
        replicas=options.get("replicas"),
        processes=options.get("processes"),
        gpus=options.get("gpus"),
        launcher=options.get("launcher"),
        name=options.get("name", ""),
        env=dict(options.get("env", {})),
        restarts=options.get("restarts", 0),
        elastic=options.get("elastic"),
        queue=options.get("queue", ""),
        timeout=options.get("timeout"),
        is_checked=options.get("check", True),
        mounts=tuple((os.fspath(f), p) for f, p in options.get("mounts", {}).items()),
        image=options.get("image", ""),
    )
    draft = Draft(
        [os.fspath(script), *words(args)],
        shape,
        cluster or ClusterShape(),
        on_cluster=for_cluster,
        python=python,
        instead="or run anyway with check=False",
    )
    draft.require()
    return draft
