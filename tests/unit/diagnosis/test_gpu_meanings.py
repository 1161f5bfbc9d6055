"""What people report of GPUs, and the cause of each: words of public reports, with other numbers
and names. None was met on a GPU here.
"""

# ruff: noqa: E501

from __future__ import annotations

import pytest

from trainyard.diagnosis.log_meanings import find_meaning

_C10D = "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, "
_ASYNC = "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
_MEMORY, _OUT = "memory of GPU", "the GPU's memory did not suffice"
_DRIVER, _NONE = "driver of its machine is older", "there is no GPU where it runs"
_INDEX, _KERNEL = "an index is out of range", "used memory that is not its own"
_MANY = "more processes than GPUs"
_ECC, _BUS, _LINK = "memory of a GPU is damaged", "gone from its machine", "NVLink"
_PEER, _REACH = "NCCL lost a rank", "could not reach another rank"
REPORTS = [
    # Memory.
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 21.50 GiB. GPU 3 has a total capacity of 79.15 GiB of which 11.73 GiB is free. Including non-PyTorch memory, this process has 67.41 GiB memory in use. Of the allocated memory 58.02 GiB is allocated by PyTorch, and 8.35 GiB is reserved by PyTorch but unallocated.",
        "memory of GPU 3 did not suffice: it asked for 21.50 GiB, and 11.73 GiB of 79.15 GiB were free",
    ),
    (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 54.10 GiB. GPU 0 has a total capacty of 12.00 GiB of which 9.05 GiB is free. Of the allocated memory 984.52 MiB is allocated by PyTorch",
        "asked for 54.10 GiB, and 9.05 GiB of 12.00 GiB were free",
    ),
    (
        "RuntimeError: CUDA out of memory. Tried to allocate 2.20 GiB (GPU 1; 6.00 GiB total capacity; 781.59 MiB already allocated; 3.03 GiB free; 1.24 GiB reserved in total by PyTorch)",
        "memory of GPU 1 did not suffice: it asked for 2.20 GiB, and 3.03 GiB of 6.00 GiB were free",
    ),
    (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.70 GiB. GPU 0 has a total capacty of 6.00 GiB of which 0 bytes is free.",
        "0 bytes of 6.00 GiB were free",
    ),
    ("RuntimeError: CUDA error: out of memory" + _ASYNC, _OUT),
    ("node7:411:611 [2] include/alloc.h:103 NCCL WARN Cuda failure 'out of memory'", _OUT),
    ("node7:411:611 [2] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'", _OUT),
    (
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        _OUT,
    ),
    # Kernels.
    (
        "../aten/src/ATen/native/cuda/Indexing.cu:1308: indexSelectLargeIndex: block: [56,0,0], thread: [30,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\nRuntimeError: CUDA error: device-side assert triggered"
        + _ASYNC,
        _INDEX,
    ),
    (
        "../aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], thread: [4,0,0] Assertion `t >= 0 && t < n_classes` failed.\nRuntimeError: CUDA error: device-side assert triggered",
        _INDEX,
    ),
    (
        '/pytorch/aten/src/ATen/native/cuda/IndexKernel.cu:92: operator(): block: [11,0,0], thread: [32,0,0] Assertion `-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.',
        _INDEX,
    ),
    (
        "RuntimeError: CUDA error: device-side assert triggered" + _ASYNC,
        "a check in a kernel of the GPU failed",
    ),
    ("RuntimeError: CUDA error: an illegal memory access was encountered" + _ASYNC, _KERNEL),
    ("torch.AcceleratorError: CUDA error: misaligned address", _KERNEL),
    ("RuntimeError: CUDA error: unspecified launch failure" + _ASYNC, _KERNEL),
    (
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "could not start",
    ),
    ("RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", "refused an operation"),
    (
        "RuntimeError: CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm(handle, opa, opb, m, n, k)`",
        "refused an operation",
    ),
    (
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method",
        "a process that was forked uses CUDA",
    ),
    # Drivers, builds and machines.
    (
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver",
        _DRIVER,
    ),
    (
        "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
        _DRIVER,
    ),
    (
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error 804: forward compatibility was attempted on non supported HW",
        _DRIVER,
    ),
    (
        "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
        _DRIVER,
    ),
    ("Failed to initialize NVML: Driver/library version mismatch", "older kernel module"),
    (
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported display driver / cuda driver combination",
        "older kernel module",
    ),
    (
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
        "fabric manager",
    ),
    (
        "RuntimeError: CUDA error: no kernel image is available for execution on the device"
        + _ASYNC,
        "no code for this model",
    ),
    (
        "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
        "another process has the GPU",
    ),
    (
        "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable CUDA_VISIBLE_DEVICES after program start.",
        "in a bad state",
    ),
    ("AssertionError: Torch not compiled with CUDA enabled", _NONE),
    ("RuntimeError: No CUDA GPUs are available", _NONE),
    ("RuntimeError: CUDA error: no CUDA-capable device is detected", _NONE),
    (
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
        _NONE,
    ),
    ("RuntimeError: CUDA error: invalid device ordinal" + _ASYNC, _MANY),
    (
        _C10D
        + "invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.21.5\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\nDuplicate GPU detected : rank 9 and rank 1 both on CUDA device 34000",
        _MANY,
    ),
    # Hardware.
    ("[74889.6] NVRM: Xid (PCI:0000:02:00): 79, pid=4112, GPU has fallen off the bus.", _BUS),
    ("RuntimeError: CUDA error: GPU is lost.  Reboot the system to recover this GPU", _BUS),
    ("RuntimeError: CUDA error: uncorrectable ECC error encountered" + _ASYNC, _ECC),
    ("kernel: NVRM: Xid (PCI:0000:b3:00): 48, pid=991, DBE (double bit error) ECC error", _ECC),
    ("kernel: NVRM: Xid (PCI:0000:b3:00): 94, pid=991, name=python, Contained: SM (0x1)", _ECC),
    ("RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution", _LINK),
    ("kernel: NVRM: Xid (PCI:0000:19:00): 74, NVLink: fatal error detected on link 3", _LINK),
    ("kernel: NVRM: Xid (PCI:0000:19:00): 13, Graphics Exception: ESR 0x50c648", "error Xid 13"),
    # NCCL.
    (
        _C10D
        + "unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\nLast error:\nBootstrap : no socket interface found",
        "no network interface",
    ),
    (
        _C10D
        + "unhandled system error, NCCL version 2.18.1\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\nLast error:\nError while creating shared memory segment /dev/shm/nccl-yUmv2N (size 9637888)",
        "/dev/shm has too little room",
    ),
    (
        _C10D
        + "unhandled system error, NCCL version 2.18.1\nncclSystemError: System call failed.\nLast error:\nsocketStartConnect: Connect to 10.0.3.7<41123> failed : Connection refused",
        _REACH,
    ),
    (
        _C10D
        + "unhandled system error, NCCL version 2.18.1\nncclSystemError: System call failed.\nLast error:\nsocketStartConnect: Connect to 10.0.3.7<41123> failed : No route to host",
        _REACH,
    ),
    (
        _C10D
        + "remote process exited or there was a network error, NCCL version 2.20.5\nncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\nLast error:\nsocketProgress: Connection closed by remote peer node2<42830>",
        _PEER,
    ),
    (
        "node3:21:88 [1] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node0<48899>",
        _PEER,
    ),
    (
        "node3:21:88 [0] misc/ibvwrap.cc:187 NCCL WARN Call to ibv_modify_qp failed with error Network is unreachable",
        "InfiniBand or RoCE",
    ),
    (
        "node3:21:88 [0] transport/net_ib.cc:1105 NCCL WARN NET/IB : Got completion from peer 10.0.35.1<49189> with error 12, opcode 0",
        "InfiniBand or RoCE",
    ),
    (
        "node3:21:88 [0] transport/net_ib.cc:1038 NCCL WARN NET/IB : req 0/1 tag 0 peer 10.10.3.6<58683> collective mismatch error, local size 496640 remote size 65536",
        "ranks call different collectives",
    ),
    (
        "node3:21:88 [3] init.cu:1197 NCCL WARN Mismatched collective detected, please check your collective calls at and around rank 11.",
        "ranks call different collectives",
    ),
    (
        "node3:21:88 [3] bootstrap.cc:80 NCCL WARN Message truncated : received 1024 bytes instead of 256",
        "ranks call different collectives",
    ),
    (
        _C10D
        + "unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 'invalid argument'",
        "CUDA told NCCL: invalid argument",
    ),
    (
        _C10D
        + "unhandled cuda error, NCCL version 2.19.3\nncclUnhandledCudaError: Call to CUDA function failed.",
        "CUDA failed below NCCL",
    ),
    (
        _C10D + "unhandled system error, NCCL version 2.19.3\nncclSystemError: System call failed.",
        "a system call of NCCL failed",
    ),
    (
        _C10D
        + "invalid usage, NCCL version 2.19.3\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\nInvalid rank 4 for communicator of size 4",
        "does not allow",
    ),
    (
        _C10D + "internal error, NCCL version 2.19.3\nncclInternalError: Internal check failed.",
        "NCCL could not connect",
    ),
    (
        "RuntimeError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        "NCCL is for GPUs",
    ),
    (
        "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600067 milliseconds before timing out.",
        "a collective operation waited in vain",
    ),
]


def test_there_are_forty_and_more() -> None:
    assert len(REPORTS) >= 40
    assert len(dict(REPORTS)) == len(REPORTS)


@pytest.mark.parametrize(("text", "cause"), REPORTS)
def test_each_has_its_cause(text: str, cause: str) -> None:
    found = find_meaning(text)
    assert found is not None
    assert cause in found.what
    assert found.advice
    assert "{" not in found.what + found.advice[0]


@pytest.mark.parametrize(
    "text",
    [
        "IndexError: index 12 is out of bounds for dimension 0 with size 10",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x784 and 512x10)",
        "ValueError: n_classes must be positive, the run has failed",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "OSError: [Errno 12] shm_open failed",
    ],
)
def test_what_no_gpu_said_is_not_taken_for_that(text: str) -> None:
    found = find_meaning(text)
    assert found is None or not any(word in found.what for word in ("GPU", "NCCL", "CUDA"))
