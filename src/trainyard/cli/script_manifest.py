"""Writes the manifest of a script to a file, with comments on where it comes from."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from trainyard.api.scripts.script_drafts import Draft
from trainyard.api.scripts.script_files import ScriptMistake
from trainyard.machine.secret_redaction import redact_value, redact_words


def save(draft: Draft, file: str) -> None:
    """Write the manifest of a draft; raises ScriptMistake if the file has other contents.

    Nobody else may read it if a variable or an argument in it looks like a secret.
    """
    path = Path(file)
    text = draft.text(folder=str(path.absolute().parent), heading=heading(draft, file))
    data = text.encode()  # before the file is touched
    try:
        if path.exists() and path.read_text(encoding="utf-8") != text:
            raise ScriptMistake(
                f"{file} exists and says something else: remove it, or name another"
            )
        has_secret = _has_secret(draft)
        opened = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600 if has_secret else 0o666)
        with open(opened, "wb") as stream:
            if has_secret and path.is_file():  # which may have been there before
                os.fchmod(opened, 0o600)
            stream.truncate()
            stream.write(data)
    except OSError as error:
        raise ScriptMistake(f"cannot write {file}: {(error.strerror or '').lower()}") from error


def _has_secret(draft: Draft) -> bool:
    given = draft.script.env.items()
    return redact_words(draft.arguments) != draft.arguments or any(
        value and redact_value(name, value) != value for name, value in given
    )


def heading(draft: Draft, file: str) -> list[str]:
    """Return the comments of a manifest: the command that made it, and how to run it."""
    options = draft.options
    words = [word.replace("\n", " ") for word in redact_words(sys.argv[1:])]
    again = run_command(draft, file)
    again += [f"--volume={claim}={folder}" for claim, folder in options.volumes.items()]
    again += [f"--resource={name}={amount}" for name, amount in options.resources.items()]
    again += [f"--image={pattern}={folder}" for pattern, folder in options.images]
    return [f"Made by: trainyard {shlex.join(words)}", f"Run it:  {shlex.join(again)}"]


def run_command(draft: Draft, file: str) -> list[str]:
    """Return the words that run a draft's manifest where it is meant to."""
    where = ["--context", "CONTEXT"] if draft.on_cluster else []
    return ["trainyard", "run", *where, "-f", file or "FILE"]
