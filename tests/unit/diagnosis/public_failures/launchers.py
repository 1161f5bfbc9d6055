"""Commands, arguments and launchers that were not meant so."""

# ruff: noqa: E501

from __future__ import annotations

from tests.unit.diagnosis.public_failures.row import NOT_THE_CODE, PublicFailure, rank_1

_ARGUMENTS = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.add_argument("--opt", choices=["sgd", "adamw"])
parser.parse_args()
"""


def _command(name: str, *words: str, **more: object) -> PublicFailure:
    """A container's command, by no launcher."""
    cause = more.pop("cause")
    return PublicFailure(
        name, str(more.pop("script", "")), cause, launcher="none",  # type: ignore[arg-type]
        container={"command": list(words), "args": []}, **more,  # type: ignore[arg-type]
    )  # fmt: skip


ROWS = (
    PublicFailure("an option that it does not know", _ARGUMENTS,
           (r"(?:unrecognized|not know the) arguments:? --epoch 3",),
           remedy=(r"args|command line",), never=(NOT_THE_CODE,),
           options={"arguments": ["--data", "x", "--epoch", "3"]}),
    PublicFailure("an option of the launcher behind the script", _ARGUMENTS,
           (r"--nproc-per-node",), remedy=(r"before the script",), never=(NOT_THE_CODE,),
           options={"arguments": ["--data", "x", "--nproc-per-node", "2"]}, launcher="torchrun",
           processes=2, who=""),
    PublicFailure("an option that it must have", _ARGUMENTS,
           (r"the following arguments are required: --data",), remedy=(r"command line|args",),
           never=(NOT_THE_CODE,)),
    PublicFailure("a choice that there is not", _ARGUMENTS,
           (r"argument --opt: invalid choice: 'adam'", r"sgd"), remedy=(r"command line|args",),
           never=(NOT_THE_CODE,), options={"arguments": ["--data", "x", "--opt", "adam"]}),
    PublicFailure("a script that there is not, by torchrun", "", (r"trian\.py",),
           remedy=(r"path|workingDir",), never=(NOT_THE_CODE,), who="", launcher="torchrun",
           processes=2, options={"target": "trian.py"}),
    PublicFailure("a script that there is not, by deepspeed", "", (r"trian\.py",),
           remedy=(r"path|workingDir",), never=(NOT_THE_CODE,), who="", launcher="deepspeed",
           replicas=2, options={"target": "trian.py"}),
    PublicFailure("a rank that only torchrun sets", """\
import os
local = int(os.environ["LOCAL_RANK"])
""", (r"LOCAL_RANK", r"launcher"), "local = int", (r"torchrun",), (NOT_THE_CODE,)),
    _command("a command in one word", "python train.py", cause=(r"one word|not found|not exist",),
           remedy=(r"for itself|\[python, train\.py\]",)),
    _command("a command that is not installed", "accelerate", "launch", "train.py",
           cause=(r"accelerate", r"not (?:exist|found)"), remedy=(r"install|spelling|environment",)),
    _command("a script that is not executable", "./run.sh", beside={"run.sh": "#!/bin/sh\n"},
           cause=(r"run\.sh",), remedy=(r"chmod \+x",)),
    _command("a shell script from Windows", "bash", "run.sh",
           beside={"run.sh": "set -e\r\ncd .\r\npython train.py\r\n"},
           cause=(r"Windows",), remedy=(r"dos2unix|sed",)),
    _command("an option that torchrun does not know", "torchrun", "--nproc-per-host", "2",
           "train.py", script="print(1)\n", cause=(r"--nproc-per-host",),
           remedy=(r"torchrun|args|command",), never=(NOT_THE_CODE,)),
    _command("more slots than mpirun has", "mpirun", "--allow-run-as-root", "--host",
           "localhost:1", "-np", "4", "python", "train.py", script="print(1)\n",
           cause=(r"not enough slots",), remedy=(r"slots|-np|--oversubscribe",)),
    PublicFailure("a larger world than was started", """\
import datetime, os, torch.distributed as dist
os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
dist.init_process_group("gloo", "env://", datetime.timedelta(seconds=8), 4, 0)
""", (r"1 (?:of|/) ?4",), "dist.init_process_group", (r"world_size|WORLD_SIZE",), (NOT_THE_CODE,)),
    rank_1("a port that is in use", """\
import socket
server = socket.create_server(("127.0.0.1", 0))
again = socket.create_server(server.getsockname())
""", (r"Address already in use", r"port"), "again = ", (r"another port",), (NOT_THE_CODE,)),
)  # fmt: skip
