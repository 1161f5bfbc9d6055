"""Failures that the words of the judge of restarts were not made by: shaped like what people report
in public, written here. Each stands for two ends that were the same (decision 230).
"""

# ruff: noqa: E501

from __future__ import annotations

import pytest

from trainyard.evidence.permanent_causes import permanent_cause

SHARE = 0.95


def trace(error: str, file: str = "train.py", line: int = 41, name: str = "main") -> str:
    """The end of a log: two frames, of which the last is the program's or a library's."""
    return (
        'Traceback (most recent call last):\n  File "/work/train.py", line 12, in <module>\n'
        f'    main()\n  File "{file}", line {line}, in {name}\n    call(x)\n{error}'
    )


_LIB = "/opt/venv/lib/python3.11/site-packages/"
LASTS: dict[str, tuple[int, str]] = {
    "state dict": (
        1,
        trace(
            "RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for head.weight: copying a param with shape torch.Size([10, 64]) from checkpoint, the shape in current model is torch.Size([12, 64]).",
            _LIB + "torch/nn/modules/module.py",
            2584,
            "load_state_dict",
        ),
    ),
    "missing keys": (
        1,
        trace(
            'RuntimeError: Error(s) in loading state_dict for GPT:\n\tMissing key(s) in state_dict: "wte.weight". ',
            _LIB + "torch/nn/modules/module.py",
            2584,
            "load_state_dict",
        ),
    ),
    "cuda oom": (
        1,
        trace(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which 1.12 GiB is free.",
            "/work/model.py",
            88,
            "forward",
        ),
    ),
    "no cuda": (
        1,
        trace(
            "AssertionError: Torch not compiled with CUDA enabled",
            _LIB + "torch/cuda/__init__.py",
            310,
            "_lazy_init",
        ),
    ),
    "device assert": (
        1,
        trace(
            "RuntimeError: CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
            _LIB + "torch/nn/functional.py",
            2551,
            "embedding",
        ),
    ),
    "pad token": (
        1,
        trace(
            "ValueError: Asking to pad but the tokenizer does not have a padding token. Please select a token to use as `pad_token`.",
            _LIB + "transformers/tokenization_utils_base.py",
            2750,
            "_get_padding_truncation_strategies",
        ),
    ),
    "test split": (
        1,
        trace(
            "ValueError: With n_samples=1, test_size=0.1 and train_size=None, the resulting train set will be empty.",
            _LIB + "sklearn/model_selection/_split.py",
            2700,
            "_validate_shuffle_split",
        ),
    ),
    "shapes": (
        1,
        trace(
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x784 and 512x10)",
            _LIB + "torch/nn/modules/linear.py",
            134,
            "forward",
        ),
    ),
    "dtype": (1, trace("RuntimeError: expected scalar type Half but found Float")),
    "two devices": (
        1,
        trace(
            "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
        ),
    ),
    "inplace": (
        1,
        trace(
            "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor [3]] is at version 2; expected version 1 instead.",
            _LIB + "torch/autograd/graph.py",
            829,
            "_engine_run_backward",
        ),
    ),
    "unused ddp": (
        1,
        trace(
            "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your module has parameters that were not used in producing loss.",
            _LIB + "torch/nn/parallel/distributed.py",
            1550,
            "_pre_forward",
        ),
    ),
    "argparse": (
        2,
        "usage: train.py [-h] --data DATA [--lr LR]\ntrain.py: error: the following arguments are required: --data",
    ),
    "bad choice": (
        2,
        "usage: train.py [-h] [--opt {sgd,adamw}]\ntrain.py: error: argument --opt: invalid choice: 'adan' (choose from 'sgd', 'adamw')",
    ),
    "no such script": (
        2,
        "python: can't open file '/work/trian.py': [Errno 2] No such file or directory",
    ),
    "command": (127, "/bin/sh: 1: accelerate: not found"),
    "not executable": (126, "/bin/sh: 1: ./run.sh: Permission denied"),
    "import": (
        1,
        trace(
            "ImportError: cannot import name 'AdamW' from 'transformers' (/opt/venv/lib/python3.11/site-packages/transformers/__init__.py)"
        ),
    ),
    "shared library": (
        1,
        trace(
            "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
            _LIB + "flash_attn/flash_attn_interface.py",
            10,
            "<module>",
        ),
    ),
    "symbol": (
        1,
        trace(
            "ImportError: /opt/ext.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
            _LIB + "ext/__init__.py",
            3,
            "<module>",
        ),
    ),
    "yaml": (
        1,
        trace(
            'yaml.scanner.ScannerError: mapping values are not allowed here\n  in "config.yaml", line 7, column 9',
            _LIB + "yaml/scanner.py",
            577,
            "fetch_value",
        ),
    ),
    "json": (
        1,
        trace(
            "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
            "/usr/lib/python3.11/json/decoder.py",
            355,
            "raw_decode",
        ),
    ),
    "key": (1, trace("KeyError: 'lr_scheduler'")),
    "index": (1, trace("IndexError: list index out of range", "/work/data.py", 19, "__getitem__")),
    "attribute": (1, trace("AttributeError: 'NoneType' object has no attribute 'shape'")),
    "unpack": (1, trace("ValueError: not enough values to unpack (expected 2, got 1)")),
    "zero": (1, trace("ZeroDivisionError: division by zero", "/work/schedule.py", 7, "rate")),
    "full disk": (
        1,
        trace(
            "OSError: [Errno 28] No space left on device: '/out/checkpoint-500'",
            _LIB + "torch/serialization.py",
            860,
            "save",
        ),
    ),
    "torch full disk": (
        1,
        trace(
            "RuntimeError: [enforce fail at inline_container.cc:626] . unexpected pos 576 vs 470",
            _LIB + "torch/serialization.py",
            860,
            "save",
        ),
    ),
    "quota": (1, trace("OSError: [Errno 122] Disk quota exceeded: '/home/me/out/last.pt'")),
    "read only": (1, trace("OSError: [Errno 30] Read-only file system: '/data/cache'")),
    "permission": (1, trace("PermissionError: [Errno 13] Permission denied: '/data/train.bin'")),
    "no data": (
        1,
        trace("FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'"),
    ),
    "bad checkpoint": (
        1,
        trace(
            "_pickle.UnpicklingError: invalid load key, '\\x0a'.",
            _LIB + "torch/serialization.py",
            1480,
            "_legacy_load",
        ),
    ),
    "weights only": (
        1,
        trace(
            "_pickle.UnpicklingError: Weights only load failed. In PyTorch 2.6, we changed the default value of the `weights_only` argument in `torch.load` from `False` to `True`.",
            _LIB + "torch/serialization.py",
            1529,
            "load",
        ),
    ),
    "zip": (
        1,
        trace(
            "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
            _LIB + "torch/serialization.py",
            750,
            "__init__",
        ),
    ),
    "nan": (
        1,
        trace("ValueError: loss is nan at step 411, stopping", "/work/guard.py", 9, "check"),
    ),
    "assertion": (
        1,
        trace("AssertionError: world size 3 is not divisible by tensor parallel size 2"),
    ),
    "deepspeed batch": (
        1,
        trace(
            "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 32 != 2 * 1 * 8",
            _LIB + "deepspeed/runtime/config.py",
            1010,
            "_batch_assertion",
        ),
    ),
    "gated": (
        1,
        trace(
            "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-66)\n\nCannot access gated repo for url https://huggingface.co/acme/model/resolve/main/config.json.",
            _LIB + "huggingface_hub/utils/_http.py",
            423,
            "hf_raise_for_status",
        ),
    ),
    "segfault": (
        139,
        'Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f11 (most recent call first):\n  File "/work/train.py", line 30 in main\n  File "/work/train.py", line 44 in <module>',
    ),
    "abort": (
        134,
        "terminate called after throwing an instance of 'std::out_of_range'\n  what():  vector::_M_range_check: __n (which is 7) >= this->size() (which is 7)\nAborted (core dumped)",
    ),
    "oom killed": (137, "step 12 loss 2.31\nstep 13 loss 2.30"),
    "indent": (
        1,
        '  File "/work/train.py", line 9\n    for x in y:\nIndentationError: expected an indented block after function definition on line 8',
    ),
    "syntax": (
        1,
        '  File "/work/train.py", line 3\n    print "hello"\n    ^^^^^^^^^^^^^\nSyntaxError: Missing parentheses in call to \'print\'. Did you mean print(...)?',
    ),
    "type": (
        1,
        trace(
            "TypeError: Trainer.__init__() got an unexpected keyword argument 'evaluation_strategy'"
        ),
    ),
    "recursion": (
        1,
        trace(
            "RecursionError: maximum recursion depth exceeded while calling a Python object",
            "/work/tree.py",
            8,
            "walk",
        ),
    ),
    "pickle": (
        1,
        trace(
            "AttributeError: Can't pickle local object 'main.<locals>.<lambda>'",
            "/usr/lib/python3.11/multiprocessing/reduction.py",
            60,
            "dump",
        ),
    ),
    "hydra": (
        1,
        "Could not override 'model.depht'.\nTo append to your config use +model.depht=4\nKey 'depht' is not in struct\n    full_key: model.depht",
    ),
    "unicode": (
        1,
        trace(
            "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
            "<frozen codecs>",
            322,
            "decode",
        ),
    ),
    "notimplemented": (
        1,
        trace(
            "NotImplementedError: The operator 'aten::_linalg_svd' is not currently implemented for the XPU device."
        ),
    ),
}
PASSES: dict[str, tuple[int, str]] = {
    "s3 endpoint": (
        1,
        trace(
            'botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "https://s3.eu-west-1.amazonaws.com/b/k"',
            _LIB + "botocore/httpsession.py",
            493,
            "send",
        ),
    ),
    "s3 closed": (
        1,
        trace(
            'botocore.exceptions.ConnectionClosedError: Connection was closed before we received a valid response from endpoint URL: "https://s3/b/k".',
            _LIB + "botocore/httpsession.py",
            501,
            "send",
        ),
    ),
    "s3 slow down": (
        1,
        trace(
            "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the PutObject operation (reached max retries: 4): Please reduce your request rate.",
            _LIB + "botocore/client.py",
            1009,
            "_make_api_call",
        ),
    ),
    "gcs": (
        1,
        trace(
            "google.api_core.exceptions.ServiceUnavailable: 503 GET https://storage.googleapis.com/b/o: We encountered an internal error. Please try again.",
            _LIB + "google/api_core/retry.py",
            205,
            "retry_target",
        ),
    ),
    "wandb": (
        1,
        trace(
            "wandb.errors.CommError: Run initialization has timed out after 90.0 sec.",
            _LIB + "wandb/sdk/wandb_init.py",
            1200,
            "init",
        ),
    ),
    "mlflow": (
        1,
        trace(
            "mlflow.exceptions.MlflowException: API request to http://mlflow:5000/api/2.0/mlflow/runs/log-batch failed with exception HTTPConnectionPool(host='mlflow', port=5000): Max retries exceeded",
            _LIB + "mlflow/utils/rest_utils.py",
            110,
            "http_request",
        ),
    ),
    "hub": (
        1,
        trace(
            "requests.exceptions.ReadTimeout: (ReadTimeoutError(\"HTTPSConnectionPool(host='cdn-lfs.hf.co', port=443): Read timed out. (read timeout=10)\"), '(Request ID: 1)')",
            _LIB + "requests/adapters.py",
            713,
            "send",
        ),
    ),
    "hub offline": (
        1,
        trace(
            "OSError: We couldn't connect to 'https://huggingface.co' to load this file, couldn't find it in the cached files.",
            _LIB + "transformers/utils/hub.py",
            446,
            "cached_file",
        ),
    ),
    "redis": (
        1,
        trace(
            "redis.exceptions.ConnectionError: Error 111 connecting to redis:6379. Connection refused.",
            _LIB + "redis/connection.py",
            363,
            "connect",
        ),
    ),
    "postgres": (
        1,
        trace(
            "psycopg2.OperationalError: server closed the connection unexpectedly",
            _LIB + "psycopg2/__init__.py",
            122,
            "connect",
        ),
    ),
    "grpc": (
        1,
        trace(
            'grpc._channel._InactiveRpcError: <_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n\tdetails = "failed to connect to all addresses"',
            _LIB + "grpc/_channel.py",
            1006,
            "_end_unary_response_blocking",
        ),
    ),
    "nccl remote": (
        1,
        trace(
            "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, remote process exited or there was a network error, NCCL version 2.21.5\nncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\nLast error:\nsocketProgressOpt: Call to recv from 10.0.0.3<33759> failed : Connection reset by peer",
            _LIB + "torch/distributed/distributed_c10d.py",
            2806,
            "all_reduce",
        ),
    ),
    "nccl system": (
        1,
        trace(
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.19.3\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
            _LIB + "torch/distributed/distributed_c10d.py",
            4000,
            "barrier",
        ),
    ),
    "infiniband": (
        134,
        "terminate called after throwing an instance of 'std::runtime_error'\n  what():  NCCL error: remote process exited or there was a network error, NCCL version 2.14.3\nncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\nLast error:\nNET/IB : Got completion from peer 10.0.0.2<39138> with error 12, opcode 0, len 0, vendor err 129",
    ),
    "watchdog": (
        134,
        "[rank5]:[E207 19:37:09.983 ProcessGroupNCCL.cpp:681] [Rank 5] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n[rank5]:[E207 19:37:09.983 ProcessGroupNCCL.cpp:695] [Rank 5] To avoid data inconsistency, we are taking the entire process down.",
    ),
    "gloo": (
        1,
        trace(
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]:48213",
            _LIB + "torch/distributed/distributed_c10d.py",
            2810,
            "all_reduce",
        ),
    ),
    "store": (
        1,
        trace(
            "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 3/4 clients joined.",
            _LIB + "torch/distributed/rendezvous.py",
            189,
            "_create_c10d_store",
        ),
    ),
    "ecc": (
        1,
        trace(
            "RuntimeError: CUDA error: uncorrectable ECC error encountered\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
        ),
    ),
    "fell off": (
        1,
        trace(
            "RuntimeError: CUDA error: unknown error\nNVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
        ),
    ),
    "launch failure": (1, trace("RuntimeError: CUDA error: unspecified launch failure")),
    "busy device": (
        1,
        trace("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
    ),
    "loader killed": (
        1,
        trace(
            "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed. ",
            _LIB + "torch/utils/data/_utils/signal_handling.py",
            73,
            "handler",
        ),
    ),
    "loader exited": (
        1,
        trace(
            "RuntimeError: DataLoader worker (pid(s) 811, 812) exited unexpectedly",
            _LIB + "torch/utils/data/dataloader.py",
            1200,
            "_try_get_data",
        ),
    ),
    "pool": (
        1,
        trace(
            "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the future was running or pending.",
            "/usr/lib/python3.11/concurrent/futures/_base.py",
            401,
            "__get_result",
        ),
    ),
    "ray": (
        1,
        trace(
            "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task. The node was preempted.",
            _LIB + "ray/_private/worker.py",
            2600,
            "get",
        ),
    ),
    "nfs": (1, trace("OSError: [Errno 116] Stale file handle: '/mnt/data/shard-07.bin'")),
    "fuse": (
        1,
        trace("OSError: [Errno 107] Transport endpoint is not connected: '/mnt/s3/shard-07.bin'"),
    ),
    "io": (1, trace("OSError: [Errno 5] Input/output error")),
    "address in use": (
        1,
        trace(
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
            _LIB + "torch/distributed/rendezvous.py",
            189,
            "_create_c10d_store",
        ),
    ),
    "ssl": (
        1,
        trace(
            "ssl.SSLEOFError: [SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol (_ssl.c:1006)",
            "/usr/lib/python3.11/ssl.py",
            1379,
            "do_handshake",
        ),
    ),
    "dns": (
        1,
        trace(
            "socket.gaierror: [Errno -3] Temporary failure in name resolution",
            "/usr/lib/python3.11/socket.py",
            962,
            "getaddrinfo",
        ),
    ),
    "lock": (
        1,
        trace(
            "filelock._error.Timeout: The file lock '/data/cache/a.lock' could not be acquired.",
            _LIB + "filelock/_api.py",
            300,
            "acquire",
        ),
    ),
    "sqlite": (1, trace("sqlite3.OperationalError: database is locked")),
    "sigterm": (143, "step 90 loss 1.2\nTerminated"),
    "sigkill": (137, "step 90 loss 1.2"),
    "torchrun lost": (
        1,
        trace(
            "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.",
            _LIB + "torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py",
            150,
            "_call_store",
        ),
    ),
    "signal exception": (
        1,
        trace(
            "torch.distributed.elastic.multiprocessing.api.SignalException: Process 71 got signal: 15",
            _LIB + "torch/distributed/elastic/multiprocessing/api.py",
            84,
            "_terminate_process_handler",
        ),
    ),
    "wget": (
        4,
        "--2026-01-01 10:00:00--  https://data.example/x.tar\nResolving data.example... failed: Temporary failure in name resolution.\nwget: unable to resolve host address 'data.example'",
    ),
    "rsync": (
        12,
        "rsync: connection unexpectedly closed (0 bytes received so far) [receiver]\nrsync error: error in rsync protocol data stream (code 12) at io.c(232)",
    ),
    "apt": (
        100,
        "E: Failed to fetch http://deb.example/pool/a.deb  503  Service Unavailable [IP: 10.0.0.1 80]",
    ),
    "pip": (
        1,
        "ERROR: Could not install packages due to an OSError: HTTPSConnectionPool(host='files.example', port=443): Read timed out.",
    ),
}


def cause(code: int, text: str) -> object:
    """What the judge makes of an end."""
    reason = "OOMKilled" if text == LASTS["oom killed"][1] and code == 137 else "Error"
    return permanent_cause(code, reason, text)


def test_most_are_judged_right() -> None:
    missed = [name for name, end in LASTS.items() if cause(*end) is None]
    stopped = [name for name, end in PASSES.items() if cause(*end) is not None]
    wrong = len(missed) + len(stopped)
    assert wrong <= (1 - SHARE) * (len(LASTS) + len(PASSES)), (missed, stopped)


@pytest.mark.parametrize("name", PASSES)
def test_none_that_may_pass_is_taken_for_lasting(name: str) -> None:
    assert cause(*PASSES[name]) is None
