"""Failures as public training code has them: what its libraries, launchers and shells write."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent

import pytest

from tests.unit.diagnosis.test_card import failed
from trainyard import diagnosis
from trainyard.cli.commands.explain import render
from trainyard.cli.failure_card_text import card_lines
from trainyard.client.log_tails import Tail
from trainyard.diagnosis.failure_card import FailureCard, failure_card_of


@dataclass(frozen=True)
class Habit:
    """The end of a log, and what the card has to say of it."""

    name: str
    log: str
    reason: str
    place: str = ""
    source: str = ""
    also: str = ""
    """In the cause or the remedy."""
    code: int = 1


TRAIN = '  File "/home/ada/train.py", line'
HEAD = "Traceback (most recent call last):"
HABITS = [
    Habit(
        "behind the progress bar of tqdm",
        f"""\
        Epoch 0:  30%|███       | 3/10 [00:00<00:01,  4.9it/s]{HEAD}
        {TRAIN} 6, in <module>
            raise RuntimeError("loss is nan")
        RuntimeError: loss is nan
        """,
        "RuntimeError: loss is nan", "train.py:6", "raise RuntimeError",
    ),
    Habit(
        "after one that was put into a log, head and all",
        f"""\
        2026-11-22 12:00:00,123 [ERROR] {HEAD}
        {TRAIN} 9, in <module>
            push()
        OSError: metrics server away

        {HEAD}
        {TRAIN} 12, in <module>
            work()
        RuntimeError: bad batch
        """,
        "RuntimeError: bad batch", "train.py:12", "work()",
    ),
    Habit(
        "after a task of asyncio that nobody waited for",
        f"""\
        Task exception was never retrieved
        future: <Task finished name='Task-2' coro=<push() done> exception=OSError('away')>
        {HEAD}
        {TRAIN} 2, in push
            raise OSError("away")
        OSError: away
        {HEAD}
        {TRAIN} 7, in <module>
            asyncio.run(main())
        RuntimeError: bad batch
        """,
        "RuntimeError: bad batch", "train.py:7",
    ),
    Habit(
        "in the frames of loguru",
        f"""\
        2026-11-22 12:00:00.1 | ERROR | __main__:<module>:6 - An error has been caught:
        {HEAD}

        > File "/home/ada/train.py", line 6, in <module>
            work(0)
            └ <function work at 0x7f>

          File "/home/ada/train.py", line 5, in work
            return 1 / x
                       └ 0

        ZeroDivisionError: division by zero
        """,
        "ZeroDivisionError: division by zero", "train.py:5 in work", "return 1 / x",
    ),
    Habit(
        "in a box of rich that breaks the message",
        """\
        ╭──────────── Traceback (most recent call last) ────────────╮
        │ /home/ada/train.py:6 in <module>                          │
        │ ❱ 6 │   work(n)                                           │
        ╰───────────────────────────────────────────────────────────╯
        RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x5
        and 4x2)
        """,
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x5 and 4x2)",
        "train.py:6", "work(n)",
    ),
    Habit(
        "in a narrow box of rich's logger",
        """\
        [11/22/26 12:56:37] ERROR    training failed              train.py:11
                                     ╭─ Traceback (most recent call last─╮
                                     │ /home/ada/train.py:9 in           │
                                     │ <module>                          │
                                     │ ❱  9 │   work(3)                  │
                                     ╰───────────────────────────────────╯
                                     RuntimeError: bad batch
        """,
        "RuntimeError: bad batch", "train.py:9", "work(3)",
    ),
    Habit(
        "in a process of a pool, and where that was waited for",
        f'''\
        multiprocessing.pool.RemoteTraceback:
        """
        {HEAD}
          File "/usr/lib/python3.11/multiprocessing/pool.py", line 125, in worker
            result = (True, func(*args, **kwds))
        {TRAIN} 3, in tokenize
            raise ValueError("sample 3 is broken")
        ValueError: sample 3 is broken
        """

        The above exception was the direct cause of the following exception:

        {HEAD}
        {TRAIN} 7, in <module>
            p.map(tokenize, range(5))
        ValueError: sample 3 is broken
        ''',
        "ValueError: sample 3 is broken", "train.py:3 in tokenize", "raise ValueError",
        "raised in another process",
    ),
    Habit(
        "in a worker of the DataLoader that the kernel killed",
        f"""\
        {HEAD}
          File "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 1, in get
            data = self._data_queue.get(timeout=timeout)
        RuntimeError: DataLoader worker (pid 29831) is killed by signal: Killed.

        The above exception was the direct cause of the following exception:

        {HEAD}
        {TRAIN} 7, in <module>
            for batch in loader:
        RuntimeError: DataLoader worker (pid(s) 29831) exited unexpectedly
        """,
        "RuntimeError: DataLoader worker (pid 29831) is killed by signal: Killed.",
        "train.py:7", "for batch in loader:", "use fewer workers (num_workers)",
    ),
    Habit(
        "of a child of torch.multiprocessing.spawn that was killed",
        f"""\
        {HEAD}
        {TRAIN} 8, in <module>
            mp.spawn(train, nprocs=2)
        torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL
        """,
        "ProcessExitedException: process 1 terminated with signal SIGKILL", "train.py:8",
        "mp.spawn",
        "for want of memory",
    ),
    Habit(
        "below accelerate launch, which tells of its child",
        f"""\
        {HEAD}
        {TRAIN} 3, in <module>
            work()
        KeyError: 'lr'
        {HEAD}
          File "/venv/bin/accelerate", line 8, in <module>
            sys.exit(main())
        subprocess.CalledProcessError: Command '['python']' returned non-zero exit status 1.
        """,
        "KeyError: 'lr'", "train.py:3", "work()", "correct train.py, line 3",
    ),
    Habit(
        "of a program that the script had started",
        f"""\
        tar: data.tar: Cannot open: No such file or directory
        {HEAD}
        {TRAIN} 2, in <module>
            subprocess.run(command, check=True)
        subprocess.CalledProcessError: Command '['tar']' returned non-zero exit status 2.
        """,
        "CalledProcessError: Command '['tar']'", "train.py:2", "subprocess.run",
        "the file data.tar does not exist",
    ),
    Habit(
        "of a program that the script had started, in words that mean nothing",
        f"""\
        mpirun: host c is not there
        {HEAD}
        {TRAIN} 2, in <module>
            subprocess.run(command, check=True)
        subprocess.CalledProcessError: Command '['mpirun']' returned non-zero exit status 2.
        """,
        "CalledProcessError: Command '['mpirun']'", "train.py:2", "subprocess.run",
        "failed: mpirun: host c is not there",
    ),
    Habit(
        "with a message that begins on the next line",
        f"""\
        {HEAD}
        {TRAIN} 2, in <module>
            check()
        RuntimeError:
        The configuration is wrong:
          lr: 3 is too high
        """,
        "RuntimeError: The configuration is wrong: lr: 3 is too high", "train.py:2",
    ),
    Habit(
        "where spawn imports the script again",
        f"""\
        {HEAD}
        {TRAIN} 3, in <module>
            for batch in loader:
        RuntimeError:
                An attempt has been made to start a new process before the
                current process has finished its bootstrapping phase.

                This probably means that you are not using fork to start your
        """,
        "RuntimeError: An attempt has been made to start a new process before the current process",
        "train.py:3", "for batch", 'if __name__ == "__main__":',
    ),
    Habit(
        "of torch.compile, which shows the place below",
        f"""\
        {HEAD}
        {TRAIN} 6, in <module>
            f(torch.zeros(3))
          File "/venv/lib/python3.11/site-packages/torch/_dynamo/eval_frame.py", line 1, in wrap
            raise e.with_traceback(
        torch._dynamo.exc.Unsupported: Failed to trace builtin operator
          Explanation: Dynamo does not know how to trace `print`

        from user code:
           File "/home/ada/model.py", line 3, in step
            print("hi")

        Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace
        """,
        "Unsupported: Failed to trace builtin operator", "model.py:3 in step", 'print("hi")',
    ),
    Habit(
        "after one of torch.compile that was survived",
        f"""\
        {HEAD}
        {TRAIN} 6, in <module>
            f(torch.zeros(3))
        torch._dynamo.exc.Unsupported: Failed to trace builtin operator
        from user code:
           File "/home/ada/model.py", line 3, in step
            print("hi")
        During handling of the above exception, another exception occurred:
        {HEAD}
        {TRAIN} 8, in <module>
            raise SystemError("no step")
        SystemError: no step
        """,
        "SystemError: no step", "train.py:8", "raise SystemError", "it followed from Unsupported",
    ),
    Habit(
        "thrown by C++, with the stack of faulthandler",
        """\
        terminate called after throwing an instance of 'std::runtime_error'
          what():  tensor has no storage
        Fatal Python error: Aborted

        Current thread 0x00007f (most recent call first):
          File "/home/ada/train.py", line 5 in step
          File "/home/ada/train.py", line 6 in <module>
        """,
        "std::runtime_error: tensor has no storage", "train.py:5 in step",
        also="look at what that line calls", code=134,
    ),
    Habit(
        "thrown by C++, without a stack",
        """\
        terminate called after throwing an instance of 'std::runtime_error'
          what():  tensor has no storage
        """,
        "std::runtime_error: tensor has no storage", also="PYTHONFAULTHANDLER=1", code=134,
    ),
    Habit(
        "in an ExceptionGroup whose members have no places of their own",
        """\
          + Exception Group Traceback (most recent call last):
          |   File "/home/ada/train.py", line 2, in parse
          |     raise ExceptionGroup("configuration", [ValueError("lr is negative"), …])
          | ExceptionGroup: configuration (2 sub-exceptions)
          +-+---------------- 1 ----------------
            | ValueError: lr is negative
            +---------------- 2 ----------------
            | TypeError: steps is no int
            +------------------------------------
        """,
        "ValueError: lr is negative", "train.py:2 in parse", "raise ExceptionGroup",
    ),
    Habit(
        "of NCCL, which says last what is the matter",
        f"""\
        [rank1]: {HEAD}
        [rank1]: {TRAIN} 4, in <module>
        [rank1]:     dist.barrier()
        [rank1]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, invalid usage
        [rank1]: ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
        [rank1]: Last error:
        [rank1]: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000
        """,
        "DistBackendError: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000",
        "train.py:4", "dist.barrier()", "cuda:LOCAL_RANK",
    ),
    Habit(
        "of NCCL's watchdog",
        """\
        terminate called after throwing an instance of 'c10::DistBackendError'
          what():  [PG ID 0 Rank 0] Watchdog caught collective operation timeout: Work
        Exception raised from checkTimeout at ProcessGroupNCCL.cpp:632 (most recent call first):
        """,
        "c10::DistBackendError: [PG ID 0 Rank 0] Watchdog caught collective",
        also="look at the logs of all ranks", code=134,
    ),
    Habit(
        "of a server that broke the connection, and is no peer",
        f"""\
        {HEAD}
        {TRAIN} 6, in <module>
            urllib.request.urlopen(url)
          File "/usr/lib/python3.11/urllib/request.py", line 216, in urlopen
            return opener.open(url, data, timeout)
        ConnectionResetError: [Errno 104] Connection reset by peer
        """,
        "ConnectionResetError: [Errno 104] Connection reset by peer", "train.py:6",
        also="whether that server runs",
    ),
    Habit(
        "of pdb without a terminal",
        f"""\
        > /home/ada/train.py(4)train()
        -> return x
        (Pdb)
        {HEAD}
        {TRAIN} 4, in train
            return x
          File "/usr/lib/python3.11/bdb.py", line 115, in dispatch_line
            if self.quitting: raise BdbQuit
        bdb.BdbQuit
        """,
        "BdbQuit", "train.py:4 in train", "return x", "trainyard debug",
    ),
    Habit(
        "of input without anybody",
        f"{HEAD}\n{TRAIN} 1, in <module>\n    input()\nEOFError: EOF when reading a line",
        "EOFError: EOF when reading a line", "train.py:1", also="take input() and breakpoint() out",
    ),
]  # fmt: skip
WORDS = [
    (
        "train.py: error: the following arguments are required: --data",
        2,
        "required: --data",
        "args",
    ),
    ("train.py: error: argument --lr: invalid float value: 'x'", 2, "invalid float value", "args"),
    ("Usage: train.py\n\nError: Missing option '--data'.", 2, "Missing option '--data'", "args"),
    (
        "╭─ Error ─────╮\n│ Missing argument 'data'.  │\n╰────────────╯",
        2,
        "argument 'data'.",
        "args",
    ),
    (
        "FATAL Flags parsing error: Unknown command line flag 'x'.\nPass --help",
        1,
        "flag 'x'",
        "args",
    ),
    ("Could not override 'lr'.\nTo append use +lr=3\n    object_type=dict", 1, "'lr'", "args"),
    (
        "error: --data is needed\n  give it a folder",
        1,
        "error: --data is needed give it a",
        "before",
    ),
    (
        "run.sh: line 3: LEARNING_RATE: unbound variable",
        1,
        "LEARNING_RATE is not set",
        "--env LEAR",
    ),
    (
        "python: can't open file '/home/ada/train.py\\r': [Errno 2]",
        2,
        "line ends of Windows",
        "sed",
    ),
    ("run.sh: line 3: ./train.py: Permission denied", 126, "./train.py is no program", "chmod +x"),
    ("cp: cannot create regular file '/data/x': Permission denied", 1, "may not do that", "volume"),
]
EXCEPTIONS = [
    (
        "ImportError: cannot import name 'Trainer' from 'lib' (/lib.py)",
        "Trainer is not in",
        "version",
    ),
    (
        "OSError: libcudart.so.12: cannot open shared object file: No such file or directory",
        "library libcudart.so.12 is not there",
        "LD_LIBRARY_PATH",
    ),
    (
        "PermissionError: [Errno 13] Permission denied: '/data/m.pt'",
        "not do that with /data/m.pt",
        "volume",
    ),
    ("OSError: [Errno 30] Read-only file system: '/data'", "/data can only be read", "readOnly"),
    ("MemoryError", "not enough memory", "ask for less"),
    ("_ArrayMemoryError: Unable to allocate 8. TiB", "not enough memory", "ask for less"),
    ("OSError: [Errno 24] Too many open files", "more files open", "ulimit -n"),
    ("RuntimeError: CUDA error: invalid device ordinal", "more processes than GPUs", "LOCAL_RANK"),
    ("RuntimeError: Distributed package doesn't have NCCL built in", "NCCL is for GPUs", "gloo"),
    (
        "_pickle.UnpicklingError: Weights only load failed. This file can",
        "nothing but weights",
        "weights_only=False",
    ),
    (
        "AttributeError: Can't pickle local object 'main.<locals>.<lambda>'",
        "pickled",
        "num_workers=0",
    ),
    (
        "OSError: We couldn't connect to 'https://huggingface.co' to load",
        "server could not be reached",
        "HTTPS_PROXY",
    ),
    (
        "RuntimeError: Attempting to deserialize object on a CUDA device but",
        "saved on a GPU",
        "map_location",
    ),
    ("HTTPError: HTTP Error 404: Not Found", "nothing at that address", "check the address"),
    (
        "HTTPError: 403 Client Error: Forbidden for url: https://hub/x",
        "wants to know who",
        "a token",
    ),
    (
        "HTTPError: 429 Client Error: Too Many Requests for url: https://hub/x",
        "could not serve it at that time",
        "later",
    ),
    ("UnidentifiedImageError: cannot identify image file 'a.jpg'", "damaged", "fetch"),
    ("OSError: [Errno 116] Stale file handle: '/nfs/a'", "file server failed", "dmesg"),
    (
        'RuntimeError: Missing key(s) in state_dict: "module.weight".',
        "without DistributedDataParallel",
        "model.module",
    ),
    (
        "ImportError: cannot import name 'Net' from 'nets' (/v/lib/python3.11/site-packages/n.py)",
        "Net is not in",
        "install the version",
    ),
]


def card_for(log: str, code: int = 1) -> FailureCard:
    """The card of a job of which a replica ended with this code and log."""
    kept = [line for line in dedent(log).split("\n") if line.strip()]
    card = failure_card_of(failed("worker-0", {"worker-0": code}, {"worker-0": Tail(kept)}))
    assert card is not None
    return card


@pytest.mark.parametrize("habit", HABITS, ids=lambda habit: habit.name)
def test_an_exception_is_found_as_libraries_write_it(habit: Habit) -> None:
    card = card_for(habit.log, habit.code)
    assert card.reason.startswith(habit.reason)
    assert card.place == habit.place
    assert card.source.startswith(habit.source)
    assert habit.also in f"{card.cause}\n{card.remedy}"


@pytest.mark.parametrize(("log", "code", "reason", "remedy"), WORDS)
def test_last_words_without_an_exception_are_read(
    log: str, code: int, reason: str, remedy: str
) -> None:
    card = card_for(log, code)
    assert reason in card.reason
    assert remedy in card.remedy


ENVIRONMENTS = [
    (
        "RuntimeError: operator torchvision::nms does not exist",
        "torch and torchvision do not fit each other",
        "(pip install torch torchvision)",
    ),
    (
        "OSError: /e/torchaudio/lib/libtorchaudio.so: undefined symbol: _ZN3c1017RegisterOperators",
        "torch and libtorchaudio do not fit",
        "versions that belong together",
    ),
    (
        (
            "ImportError: flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so: undefined symbol: "
            "_ZNK3c105Error4whatEv"
        ),
        "torch and flash_attn_2_cuda do not fit",
        "versions that belong together",
    ),
    (
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96",
        "built for another NumPy",
        "pip install 'numpy<2'",
    ),
    (
        (
            "ImportError: /lib/x86_64/libc.so.6: version `GLIBC_2.32' not found (required "
            "by /e/x.so)"
        ),
        "GLIBC_2.32 is not in what is there",
        "newer image",
    ),
    (
        (
            "ModuleNotFoundError: Requirement 'jsonargparse[signatures]>=4.27.7' not met. HINT: "
            "Try running `pip install -U 'jsonargparse[signatures]>=4.27.7'`"
        ),
        "wants a package",
        ": pip install -U 'jsonargparse[signatures]>=4.27.7'",
    ),
    (
        (
            "ImportError: Using the `Trainer` with `PyTorch` requires `accelerate>=0.26.0`: Please "
            "run `pip install transformers[torch]` or `pip install 'accelerate>=0.26.0'`"
        ),
        "wants a package",
        ": pip install transformers[torch]",
    ),
    (
        "ImportError: Please install tensorboard to use it: pip install tensorboard",
        "wants a package",
        ": pip install tensorboard",
    ),
    (
        "RuntimeError: wandb is missing. Run pip install wandb to log, or set report_to",
        "wants a package",
        ": pip install wandb",
    ),
    (
        "ImportError: use conda install -c conda-forge faiss, or build it",
        "wants a package",
        ": conda install -c conda-forge faiss",
    ),
]
"""Of the environment, not of the line that raised them."""


@pytest.mark.parametrize(("text", "cause", "remedy"), ENVIRONMENTS)
def test_what_is_wrong_with_an_environment_is_not_blamed_on_the_script(
    text: str, cause: str, remedy: str
) -> None:
    card = card_for(f"{HEAD}\n{TRAIN} 6, in <module>\n    import torchvision\n{text}")
    assert cause in card.cause
    assert remedy in card.remedy
    assert "correct" not in card.remedy
    assert card.remedy.endswith(remedy) or not remedy.startswith(":")


@pytest.mark.parametrize(("text", "cause", "remedy"), EXCEPTIONS)
def test_an_exception_that_newcomers_meet_has_a_remedy(text: str, cause: str, remedy: str) -> None:
    card = card_for(f"{HEAD}\n{TRAIN} 1, in <module>\n    work()\n{text}")
    assert card.reason.endswith(text.removeprefix("_pickle."))
    assert cause in card.cause
    assert remedy in card.remedy


def test_what_was_written_long_before_the_end_does_not_explain_it() -> None:
    warned = ["cache: /data/index: No such file or directory: building it"]
    epochs = [f"epoch {number}: loss 0.3" for number in range(20)]
    assert card_for("\n".join([*warned, *epochs]), 3).reason == "epoch 19: loss 0.3"
    assert "SIGKILL" in card_for("\n".join([*epochs, *warned]), 137).reason


def test_processes_that_end_with_the_same_words_are_counted() -> None:
    tail = Tail(["python: can't open file '/home/ada/train.py': [Errno 2] No such file"])
    codes = dict.fromkeys(("worker-0", "worker-1", "worker-2"), 2)
    card = failure_card_of(failed("worker-0", codes, dict.fromkeys(codes, tail)))
    assert card is not None
    assert card.peers == "2 other processes failed alike"


def test_explain_does_not_show_again_the_line_that_it_has_read() -> None:
    log = Tail(["loading", "error: --data is needed", "  give it a folder"])
    gone = Tail(["loading", "python: can't open file '/home/ada/train.py': [Errno 2] No such file"])
    for tail, said in ((log, "--data is needed"), (gone, "/home/ada/train.py")):
        known = failed("worker-0", {"worker-0": 2}, {"worker-0": tail})
        card = failure_card_of(known)
        assert card is not None
        text = "\n".join(card_lines(card)) + "\n" + render(known, diagnosis.causes(known), card)
        assert text.count(said) == 1
        assert "| loading" in text
