"""What messages of CUDA, its driver and NCCL mean, and a remedy: a part of `log_meanings`.

CUDA tells of an error at some later call: where it was raised is not where it happened. By words
that people have reported; none of them was met on a GPU here.
"""

from __future__ import annotations

from typing import NamedTuple


class LogPattern(NamedTuple):
    """A pattern in the last lines of a log, and what it means."""

    pattern: str
    what: str
    advice: str


_WHERE = (
    "run it once with CUDA_LAUNCH_BLOCKING=1, since the line that is told is only where CUDA was "
    "asked next"
)
_NETWORK = (
    "look whether each node reaches the others (NCCL_SOCKET_IFNAME names the interface to use), "
    "and at the lines of NCCL_DEBUG=INFO before"
)
_HARDWARE = (
    "look at `nvidia-smi -q` and the kernel's log (dmesg) of that node, drain it, and reset or "
    "replace the GPU"
)
_ASK_FOR_GPU = (
    "give the replica one (resources.limits nvidia.com/gpu, --gpus 1), an image with CUDA, or "
    "let the script take the CPU"
)

GPU_PATTERNS = (
    LogPattern(
        r"deserialize object on a CUDA device",
        "what it loads was saved on a GPU, and there is none where it runs",
        "load it with map_location='cpu', or give the replica a GPU",
    ),
    # Of the hardware, whatever else is said of what followed.
    LogPattern(
        r"fallen off the bus|NVRM: Xid [^\n]*?: 79,|CUDA error: GPU is lost",
        "a GPU is gone from its machine (fallen off the bus)",
        _HARDWARE,
    ),
    LogPattern(
        r"uncorrectable (?:NVLink|Nvlink) error|NVRM: Xid [^\n]*?: 74,",
        "a link between GPUs (NVLink) failed",
        _HARDWARE,
    ),
    LogPattern(
        r"(?i)uncorrectable ECC error|NVRM: Xid [^\n]*?: (?:48|63|64|94|95),|double.bit ECC",
        "memory of a GPU is damaged (ECC)",
        _HARDWARE,
    ),
    LogPattern(
        r"NVRM: Xid [^\n]*?: (\d+),",
        "the driver of a GPU told of error Xid {0}",
        "look Xid {0} up in NVIDIA's list of them, and at the kernel's log of that node (dmesg)",
    ),
    # Of the driver.
    LogPattern(
        r"NVIDIA driver on your system is too old|CUDA driver version is insufficient"
        r"|forward compatibility was attempted on non supported HW"
        r"|unsupported toolchain|provided PTX was compiled with",
        "the NVIDIA driver of its machine is older than what its CUDA needs",
        "update the driver of the node, or use an image whose torch is built for an older CUDA",
    ),
    LogPattern(
        r"Driver/library version mismatch|unsupported display driver / cuda driver combination",
        "the NVIDIA driver was updated while its older kernel module still runs",
        "restart the node, or load the module anew",
    ),
    LogPattern(
        r"(?:Error 802|CUDA[^\n]*): system not yet initialized",
        "the GPUs are not ready: on machines with NVSwitch the fabric manager does not run",
        "start nvidia-fabricmanager of the driver's own version on that node",
    ),
    LogPattern(
        r"no kernel image is available",
        "its torch, or an extension, has no code for this model of GPU",
        "install a build for that GPU (torch.cuda.get_arch_list() shows what there is)",
    ),
    LogPattern(
        r"all CUDA-capable devices are busy or unavailable",
        "another process has the GPU for itself alone",
        "look at `nvidia-smi` who has it, and at the GPU's compute mode",
    ),
    LogPattern(
        r"CUDA error: unknown error|CUDA unknown error",
        "the GPU or its driver is in a bad state, or another process of it changed what it may see",
        "set CUDA_VISIBLE_DEVICES only before the program starts; else look at the node's dmesg",
    ),
    LogPattern(
        r"doesn't have NCCL built in|ProcessGroupNCCL is only supported with GPUs",
        "NCCL is for GPUs, and there is none where it runs, or torch is built without CUDA",
        "use the backend gloo where there is no GPU, or an image with CUDA and a GPU",
    ),
    LogPattern(
        r"Cannot re-initialize CUDA in forked subprocess",
        "a process that was forked uses CUDA, which its parent had used already",
        "start processes by spawn (multiprocessing.set_start_method('spawn')), or use CUDA only "
        "after the fork",
    ),
    LogPattern(
        r"invalid device ordinal|Duplicate GPU detected|CUDA_ERROR_INVALID_DEVICE",
        "it has more processes than GPUs, or they do not take one each",
        "have each process take cuda:LOCAL_RANK, and start no more than there are GPUs "
        "(--procs-per-replica, --gpus)",
    ),
    LogPattern(
        r"Torch not compiled with CUDA|No CUDA GPUs are available|Found no NVIDIA driver"
        r"|no NVIDIA GPU detected|compiled without CUDA support|no CUDA-capable device is detected"
        r"|'torch\._C' has no attribute '_(?:cuda|nccl)_|requires CUDA support"
        r"|Cannot access accelerator device when none is available"
        r"|instantiate dummy base class (?:CUDA|Event)|doesn't support bf16/gpu",
        "it asks for CUDA, and there is no GPU where it runs",
        _ASK_FOR_GPU,
    ),
    LogPattern(
        r"device_ids and output_device arguments only work with .*device\(type='cpu'\)",
        "DistributedDataParallel is given a GPU by device_ids, and the model is on the CPU",
        "leave device_ids out where the model is on the CPU, or move the model to its GPU before",
    ),
    # Of memory: torch before 2.1 put the GPU into brackets.
    LogPattern(
        r"CUDA out of memory\. Tried to allocate ([\d.]+ \w+)[. ]+\(?GPU (\d+)"
        r"(?:;| has a total capac\w+ of) ([\d.]+ \w+)(?: total capacity; [^;]+;"
        r"| of which) ([\d.]+ \w+)(?: is)? free",
        "the memory of GPU {1} did not suffice: it asked for {0}, and {3} of {2} were free",
        "use a smaller batch or model, or more GPUs; `nvidia-smi` on the node shows who else has "
        "memory of that GPU",
    ),
    LogPattern(
        r"(?i)CUDA out of memory|CUDA error: out of memory|Cuda failure (?:\d+ )?'out of memory'"
        r"|CUBLAS_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY",
        "the GPU's memory did not suffice",
        "use a smaller batch or model, or more GPUs",
    ),
    # Of kernels.
    LogPattern(
        r"Assertion `[^`]*(?:srcIndex < srcSelectDimSize|index out of bounds|n_classes)[^`]*`",
        "an index is out of range on the GPU: of an embedding, a label or a class",
        "compare the largest index with the size of what it is used on, on the CPU or with "
        "CUDA_LAUNCH_BLOCKING=1",
    ),
    LogPattern(
        r"device-side assert triggered|CUDA_ERROR_ASSERT",
        "a check in a kernel of the GPU failed, most often an index out of range",
        _WHERE,
    ),
    LogPattern(
        r"illegal memory access|misaligned address|illegal instruction was encountered"
        r"|CUDA_ERROR_ILLEGAL_ADDRESS|Warp Illegal|unspecified launch failure"
        r"|invalid program counter",
        "a kernel on the GPU used memory that is not its own",
        f"{_WHERE}; compute-sanitizer tells which kernel it was",
    ),
    LogPattern(
        r"CUBLAS_STATUS_NOT_INITIALIZED|CUDNN_STATUS_NOT_INITIALIZED",
        "a library of CUDA could not start, most often for want of memory on the GPU",
        "use a smaller batch or model, and look at `nvidia-smi` who else has memory of that GPU",
    ),
    LogPattern(
        r"CUDNN_STATUS_\w+|CUBLAS_STATUS_\w+|CUSOLVER_STATUS_\w+",
        "a library of CUDA refused an operation",
        f"{_WHERE}; shapes and types that do not fit are the usual cause",
    ),
    # Of NCCL, the particular words before its classes of errors.
    LogPattern(
        r"Watchdog caught collective|Timed out waiting \d+ms for (?:recv|send)",
        "a collective operation waited in vain: a rank hangs, is gone, or went another way",
        "look at the logs of all ranks for one that stopped early; torch's "
        "TORCH_DISTRIBUTED_DEBUG=DETAIL tells of ranks that differ",
    ),
    LogPattern(
        r"no socket interface found",
        "NCCL found no network interface that it may use",
        "set NCCL_SOCKET_IFNAME to one that is there, or unset it",
    ),
    LogPattern(
        r"Mismatched collective detected|NET/IB[^\n]*collective mismatch|NCCL version mismatch"
        r"|NCCL[^\n]*Message truncated",
        "ranks call different collectives, or their NCCL is of different versions",
        "give all replicas the same image, and have every rank call the same collectives in the "
        "same order with the same shapes",
    ),
    LogPattern(
        r"NCCL[^\n]*/dev/shm[^\n]*(?:fail|error|No space)"
        r"|Error while creating shared memory segment",
        "/dev/shm has too little room for NCCL",
        "mount an emptyDir with medium Memory at /dev/shm",
    ),
    LogPattern(
        r"Call to ibv_\w+ failed|NET/IB : Got completion|ibv_reg_mr|local catastrophic error",
        "NCCL's network (InfiniBand or RoCE) failed",
        "look at `ibstat` of the nodes, and at memlock (ulimit -l); NCCL_IB_DISABLE=1 goes without",
    ),
    LogPattern(
        r"(?:NCCL|socketStartConnect)[^\n]*(?:Connection refused|No route to host"
        r"|Connection timed out|Network is unreachable)",
        "NCCL could not reach another rank",
        _NETWORK,
    ),
    LogPattern(
        r"ncclRemoteError|(?:NCCL|socketProgress)[^\n]*[Cc]onnection closed by remote peer"
        r"|NCCL communicator was aborted",
        "NCCL lost a rank: its process ended, or the network between them failed",
        "look at the log of the rank that ended first",
    ),
    LogPattern(
        r"Cuda failure (?:\d+ )?'([^']+)'",
        "CUDA told NCCL: {0}",
        "look at what CUDA says of it; NCCL has only met it",
    ),
    LogPattern(
        r"ncclInvalidUsage|ncclInvalidArgument|NCCL error[^\n]*invalid (?:usage|argument)",
        "NCCL was used in a way that it does not allow",
        "look at the words after `Last error:`; NCCL_DEBUG=WARN tells more",
    ),
    LogPattern(
        r"ncclUnhandledCudaError|NCCL error[^\n]*unhandled cuda error",
        "CUDA failed below NCCL",
        "look at what NCCL_DEBUG=WARN tells of CUDA, and whether each process has a GPU of its own",
    ),
    LogPattern(
        r"ncclSystemError|NCCL error[^\n]*unhandled system error",
        "a system call of NCCL failed: of the network, or of /dev/shm",
        "set NCCL_DEBUG=WARN, which tells which; then the interface (NCCL_SOCKET_IFNAME) or the "
        "size of /dev/shm",
    ),
    LogPattern(
        r"NCCL (?:error|WARN)|ncclInternalError",
        "NCCL could not connect the replicas or their GPUs",
        "set NCCL_DEBUG=INFO and look at the logs of all replicas",
    ),
)
"""More specific rows come first."""
