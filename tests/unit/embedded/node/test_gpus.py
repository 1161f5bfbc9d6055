"""GPUs are handed out once, kept over restarts of a container, and given back."""

from __future__ import annotations

from trainyard.embedded.node.containers.gpus import GpuPool, device_nodes, requested


def test_no_gpu_is_given_twice() -> None:
    pool = GpuPool([0, 1, 2, 3])
    assert pool.take("a", "main", 2) == [0, 1]
    assert pool.take("b", "main", 2) == [2, 3]
    assert pool.take("a", "main", 2) == [0, 1]
    assert pool.take("c", "main", 1) == []


def test_what_a_pod_had_is_free_again_after_it() -> None:
    pool = GpuPool([0, 1])
    pool.take("a", "main", 2)
    pool.release("a")
    assert pool.take("b", "main", 1) == [0]


def test_what_a_running_pod_has_is_not_free_after_a_restart_of_the_agent() -> None:
    pool = GpuPool([0, 1])
    pool.restore("a", "main", [0])
    assert pool.take("b", "main", 1) == [1]


def test_requests_and_device_nodes() -> None:
    assert requested({"resources": {"limits": {"nvidia.com/gpu": "2"}}}) == 2
    assert requested({}) == 0
    assert device_nodes([]) == []
    assert device_nodes([3])[:2] == ["/dev/nvidia3", "/dev/nvidiactl"]
