"""A table of messages of programs, Python, torch and shells, with their meaning and a remedy.

A row is for what a newcomer cannot understand from the message alone, or what has another remedy
than to correct the line that raised it. More specific rows come first.
"""

from __future__ import annotations

import re

from trainyard.diagnosis.gpu_meanings import GPU_PATTERNS, LogPattern
from trainyard.kinds.shared.reasons import NO_ROOM
from trainyard.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """What probably happened, and what to do about it."""

    what: str
    advice: tuple[str, ...] = ()
    is_guess: bool = False
    """Whether there is nothing but an exit code that may mean anything."""
    line: str = ""
    """The line of a log that says so."""


CHECK_PATHS = (
    "check the path, `workingDir` and the volume mounts; --volume CLAIM=DIR is what fills a claim"
)
VOLUME_FULL = "a volume or the disk is full"
COLLECTIVES_DIFFER = "the collectives of the ranks do not match"
_SAME_COLLECTIVES = (
    "have every rank call the same ones, in the same order and with the same shapes: look for an "
    "`if rank == …` around one, and for a last batch that is smaller"
)
_PATTERNS = (
    LogPattern(
        r"Timed out after \d+ seconds waiting for clients. (\d+)/(\d+) clients joined",
        "only {0} of {1} processes came: the others hang, look for the first one elsewhere, or "
        "were never started",
        "leave world_size to the launcher's WORLD_SIZE; look whether all ranks get there, with one "
        "MASTER_ADDR and port",
    ),
    LogPattern(
        r"wait timeout after \d+ms, keys: /default_pg",
        "it waited in vain for all processes to join: some hang, or the world is larger than what "
        "was started",
        "leave world_size to the launcher's WORLD_SIZE, and look whether all ranks get that far",
    ),
    LogPattern(
        r"(?s)Rank (\d+) is running collective: .*?OpType=(\w+(?:, TensorShape=\[[\d, ]*\])?).*?"
        r"Rank (\d+) is running collective: .*?OpType=(\w+(?:, TensorShape=\[[\d, ]*\])?)",
        f"{COLLECTIVES_DIFFER}: rank {{0}} calls {{1}}, rank {{2}} {{3}}",
        _SAME_COLLECTIVES,
    ),
    LogPattern(
        r"Received data size doesn't match expected size|distributed collective mismatch",
        f"{COLLECTIVES_DIFFER}: it was sent more than it asked for",
        f"{_SAME_COLLECTIVES}; --env TORCH_DISTRIBUTED_DEBUG=DETAIL tells both sizes and lines",
    ),
    LogPattern(
        r"environment variable (\w+) expected, but not set"
        r"|KeyError: '((?:LOCAL_|GROUP_|ROLE_)?RANK|(?:LOCAL_)?WORLD_SIZE|MASTER_(?:ADDR|PORT))'",
        "{0} is set by a launcher, and this one does not set it",
        "use one that does, such as torchrun (--launcher torchrun), or do without the variable",
    ),
    LogPattern(
        r"KeyError: '(\w+)'\n.*environ|(\w+): (?:unbound variable|parameter not set)",
        "the variable {0} is not set where it runs",
        "set it: `env` of the container, or --env {0}=VALUE",
    ),
    LogPattern(
        r"most likely due to a circular import",
        "two modules import each other, or a file of the script's folder hides a package",
        "rename the file that has the name of a package",
    ),
    LogPattern(
        r"operator (torch\w+)::\w+ does not exist|your PyTorch and (\w+) versions are incompatible",
        "torch and {0} do not fit each other: that was built for another torch",
        "install versions that belong together, in one command (pip install torch {0}); the script "
        "is right",
    ),
    LogPattern(
        r"([A-Za-z]\w*)[^\s/:]*\.so\S*: undefined symbol: \w*(?:c10|torch|2at)",
        "torch and {0} do not fit each other: that was built for another torch",
        "install versions that belong together, of torch and of the package that has {0}; the "
        "script is right",
    ),
    LogPattern(
        r"numpy\.\w+ size changed|compiled using NumPy 1\.x|_ARRAY_API not found"
        r"|numpy\.core\.multiarray failed to import",
        "a package was built for another NumPy than the one that is there",
        "install that package anew, or the NumPy that it was built for (pip install 'numpy<2')",
    ),
    LogPattern(
        r"version [`']((?:GLIBC|GLIBCXX|CXXABI)_[\d.]+)' not found",
        "a package was built for a newer system: {0} is not in what is there",
        "install the package from a source or channel for this system, or use a newer image",
    ),
    LogPattern(
        r"`((?:pip3?|uv pip|conda|mamba) install [^`\n]+)`"
        r"|\b((?:pip3?|uv pip|conda|mamba) install (?!(?:-U|--upgrade) pip\b)"
        r"(?:-c [\w-]+ |--?[\w-]+ )*(?:'[^'\n]+'|\"[^\"\n]+\"|[\w.\[\],=<>~!-]*[\w\]]))",
        "it wants a package, or a version of one, that is not there",
        "run what its message says, for the Python that the replica runs: {0}",
    ),
    LogPattern(
        r"cannot import name '([^']+)' from "
        r"[^\n]*/lib/python3\.\d+/(?!site-packages|dist-packages)",
        "the standard library of this Python has no {0}",
        "run a newer Python if the name is new; if it is old, install a newer version of what "
        "imports it",
    ),
    LogPattern(
        r"f-string: (?:unmatched|expecting '}')[^\n]*\n.*f([\"'])[^\n]*\{[^\n}]*\1[^\n]*\1"
        r"|f-string expression part cannot include a backslash",
        "before Python 3.12 an f-string holds within it neither its own quotes nor a backslash",
        "use other quotes in it, or run Python 3.12 or newer",
    ),
    LogPattern(
        r"cannot import name '([^']+)' from",
        "{0} is not in what it is imported from, as it is installed there",
        "install the version that has it, or correct the name; look too whether a file of the "
        "script's folder hides the package",
    ),
    LogPattern(
        r"DataLoader worker .*Bus error|out of shared memory",
        "/dev/shm does not hold what the workers of the DataLoader hand over",
        "mount an emptyDir with medium Memory at /dev/shm, or use fewer workers",
    ),
    LogPattern(
        r"DataLoader worker .*killed by signal: Killed",
        "a worker of the DataLoader was killed, by the kernel for want of memory or by somebody",
        "raise resources.limits.memory of the container, or use fewer workers (num_workers); "
        "dmesg tells if memory was short",
    ),
    LogPattern(
        r"DataLoader worker .*exited unexpectedly",
        "a worker of the DataLoader ended without a word",
        "set num_workers=0 to see why",
    ),
    LogPattern(
        r"terminated with signal SIGKILL|process in the process pool was terminated abruptly",
        "a process that it had started was killed, by the kernel for want of memory or by somebody",
        "raise resources.limits.memory of the container, or start fewer processes",
    ),
    LogPattern(
        r"before the\s+current process has finished its bootstrapping phase",
        "processes that are started by spawn import the script again, and so start some again",
        'put what the script does below `if __name__ == "__main__":`',
    ),
    LogPattern(
        r"Can't pickle|cannot pickle",
        "what is handed to another process has to be pickled, and that cannot be",
        "use a function of a module in place of a lambda or a local one, or num_workers=0",
    ),
    LogPattern(
        r"\b\w*MemoryError\b|can't allocate memory|Cannot allocate memory|std::bad_alloc",
        "there was not enough memory for what it asked for",
        "raise resources.limits.memory of the container, or ask for less",
    ),
    LogPattern(
        r"Too many open files|received 0 items of ancdata",
        "it holds more files open than it may",
        "close them, raise `ulimit -n` where trainyard runs, or have torch share memory by names "
        "(torch.multiprocessing.set_sharing_strategy('file_system'))",
    ),
    LogPattern(
        r"can't start new thread|(?:fork|clone|vfork)[^\n]*Resource temporarily unavailable",
        "it has more processes and threads than it may",
        "start fewer workers, set OMP_NUM_THREADS, or raise the limit (`ulimit -u`, pids)",
    ),
    LogPattern(
        r"EOF when reading a line|^BdbQuit",
        "it asks for input, and there is nobody to give any",
        "take input() and breakpoint() out; `trainyard debug` lets you run it by hand",
    ),
    LogPattern(
        r"Unexpected key\(s\) in state_dict: \"module\.",
        "the checkpoint is of a model in DistributedDataParallel, and goes into one that is not",
        "take `module.` off its keys, or save model.module.state_dict()",
    ),
    LogPattern(
        r"Missing key\(s\) in state_dict: \"module\.",
        "the checkpoint is of a model without DistributedDataParallel, and goes into one with it",
        "load it into model.module, or before the model is wrapped",
    ),
    LogPattern(
        r"Weights only load failed",
        "torch loads nothing but weights, and the file holds other objects",
        "trust the file by weights_only=False, or its classes by torch.serialization."
        "add_safe_globals",
    ),
    LogPattern(
        r"(?i)certificate[ _]verify[ _]failed",
        "the certificate of a server is signed by nobody who is known where it runs",
        "tell it who signed it, such as a proxy (--env SSL_CERT_FILE=…, REQUESTS_CA_BUNDLE=…)",
    ),
    LogPattern(
        r"HTTP Error 40[13]\b|\b40[13] Client Error",
        "a server does not give that to whoever asks, or wants to know who does",
        "give it a token that may (--env HF_TOKEN for Hugging Face), and check the address",
    ),
    LogPattern(
        r"HTTP Error 404\b|\b404 Client Error",
        "a server has nothing at that address",
        "check the address, and whether it shows itself to those with a token only",
    ),
    LogPattern(
        r"HTTP Error (?:429|5\d\d)\b|\b429 Client Error|\b5\d\d Server Error",
        "a server could not serve it at that time",
        "run it again later (--restart N does so by itself), or fetch what is needed before, onto "
        "a volume",
    ),
    LogPattern(
        r"Unable to find address for: \S+",
        "the network interface that it is to use is not there, or has no address",
        "correct GLOO_SOCKET_IFNAME, or leave it out",
    ),
    LogPattern(
        r"Parent directory (\S+) does not exist",
        "the folder {0}, into which it writes, does not exist where the replica runs",
        "have it made before (os.makedirs), or check the path and the volume mounts",
    ),
    LogPattern(
        r"num_samples=0\b|n_samples=0\b|resulting train set will be empty|Found no valid file",
        "the dataset is empty: nothing was found where it looks, or nothing was left of it",
        "check the path of the data, its volume, and what is filtered out of it",
    ),
    LogPattern(
        r"PytorchStreamReader failed|Not a gzipped file|not a zip file|No data left in file"
        r"|(?:Ran out of input|pickle data was truncated)(?!\n.*from_parent)"
        r"|image file is truncated|cannot identify image file|unexpected end of data"
        r"|ended before the end-of-stream marker|Error while deserializing header",
        "a file is damaged or not whole, or not of the kind that it is read as",
        "look at its size and its first bytes, and fetch or write it again; of checkpoints take an "
        "earlier one",
    ),
    LogPattern(
        r"Input/output error|Stale file handle",
        "the disk or the file server failed from which it reads, or to which it writes",
        "look at the node's kernel log (dmesg) and its storage; on another node it may go well",
    ),
    LogPattern(
        r"Remote end closed connection|Connection aborted|Name or service not known"
        r"|name resolution|urlopen error|HTTPS?ConnectionPool"
        r"|[Cc]ould(?: not|n't) connect to '?https?:|Max retries exceeded"
        r"|cannot find the requested files in the local cache|LocalEntryNotFoundError",
        "a server could not be reached from where it runs",
        "check the address and the network (a proxy: --env HTTPS_PROXY=…), or fetch what is needed "
        "before, onto a volume",
    ),
    LogPattern(
        r"\\r'|\$'\\r'",
        "a shell script has the line ends of Windows",
        "convert it: dos2unix, or sed -i 's/\\r$//'",
    ),
    LogPattern(
        r"can't open file ['\"]?([^'\":]+)",
        "the script {0} does not exist where the replica runs",
        CHECK_PATHS,
    ),
    LogPattern(
        r"No module named ['\"]?(\w+)\.([\w.]+)",
        "the package {0} has no module {1} where the replica runs",
        "correct the import, or look why that file is missing if {0} is yours; else install the "
        "version of {0} that has it",
    ),
    LogPattern(
        r"No module named ['\"]?(\w+)",
        "the Python package {0} is not there",
        "install it for the Python that the replica runs, or use another image (on this machine "
        "--image PATTERN=ENV names the environment that stands for it); a module of yours has to "
        "be beside the script or in PYTHONPATH",
    ),
    LogPattern(
        r"unrecognized arguments: (.+)",
        "its program does not know the arguments {0}",
        "correct `args` of the container; options of a launcher such as torchrun, or of `trainyard "
        "run`, stand before the script",
    ),
    LogPattern(
        r"--oversubscribe option to ignore the\s+number of available slots",
        "there are not enough slots for the processes that mpirun is to start",
        "start fewer (-np), give hosts more (--host NAME:SLOTS, or slots=N), or --oversubscribe",
    ),
    LogPattern(
        r"(?m)^(?:(?:\S+: error|Error): )?((?:the following arguments|argument -|argument \w+:"
        r"|one of the arguments|Missing (?:argument|option|parameter|command)|Invalid value for"
        r"|No such (?:option|command)|Got unexpected extra|Could not override ').+)"
        r"|FATAL Flags parsing error:\s+(.+)",
        "its program refuses its arguments: {0}",
        "correct them: what stands after the script on the command line, `args` of the container",
    ),
    LogPattern(
        r"(?i)Address already in use|EADDRINUSE",
        "a port was in use already",
        "let another port be used, unless this one is used twice by mistake; without namespaces "
        "(see `trainyard status`) all replicas share the machine's",
    ),
    LogPattern(
        NO_ROOM,
        VOLUME_FULL,
        "make room, or raise the volume's sizeLimit",
    ),
    LogPattern(
        r"user (\d+) may not enter (\S+)",
        "user {0}, as whom it runs, may not enter {1}, which is on the way to what it starts",
        "have it run as a user who may (securityContext.runAsUser), let others enter that folder "
        "(chmod o+x), or use an environment that is elsewhere (--image PATTERN=ENV)",
    ),
    LogPattern(
        r"(?i)Permission denied: ['\"]([^'\"]+)|(\S+): Permission denied",
        "the user that the replica runs as may not do that with {0}",
        "write to a mounted volume or /tmp, or change the file's rights (chmod, securityContext)",
    ),
    LogPattern(
        r"(?i)Read-only file system: ['\"]([^'\"]+)|(\S+): Read-only file system",
        "{0} can only be read there",
        "write to a volume that is not mounted with readOnly",
    ),
    LogPattern(
        r"([\w.+-]+\.so[\w.]*): cannot open shared object file",
        "the library {0} is not there",
        "install what has it, or build the package anew for what is there; LD_LIBRARY_PATH says "
        "where else it may be",
    ),
    LogPattern(
        r"(?m)command not found: (?!\S+ in PATH=)(\S+ .+?)(?: in PATH=|$)",
        "the command '{0}' is one word, so a program of that whole name was looked for",
        "write every word of `command` for itself: [python, train.py]",
    ),
    LogPattern(
        r"command not found: (\S+)|(\S+): (?:command )?not found"
        r"|exec: \"([^\"]+)\": executable file not found",
        "the command {0} does not exist where the replica runs",
        "check its spelling and PATH, and which environment stands for the image "
        "(--image PATTERN=ENV)",
    ),
    LogPattern(
        r"Argument list too long",
        "its arguments and environment are longer than Linux allows",
        "pass what is long in a file, such as one of a ConfigMap",
    ),
    LogPattern(
        r"No such file or directory: ['\"]([^'\"]+)",
        "the file {0} does not exist where the replica runs",
        CHECK_PATHS,
    ),
    LogPattern(
        r"([^\s:'\"]+)['\"]?: (?:Cannot \w+: )?No such file or directory",
        "the file {0} does not exist where the replica runs",
        CHECK_PATHS,
    ),
)


def find_meaning(text: str) -> Reading | None:
    """What the first row that knows the text makes of it; None where none does."""
    for pattern, what, advice in (*GPU_PATTERNS, *_PATTERNS):
        if found := re.search(pattern, text):
            subjects = [group for group in found.groups() if group] or [""]
            line = text[text.rfind("\n", 0, found.start()) + 1 :].partition("\n")[0]
            return Reading(what.format(*subjects), (advice.replace("{0}", subjects[0]),), line=line)
    return None
