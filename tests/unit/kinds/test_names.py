"""Names are what existing clusters show for the same job and UID."""

from __future__ import annotations

import pytest

from trainyard.kinds.shared import child_names
from trainyard.schema.object_names import fnv1a64, is_dns_label


@pytest.mark.parametrize(
    ("job", "uid", "digest"),
    [
        ("mnist", "422e8cc7-163f-4d49-9fb8-d059e490a09b", "12e8d57475a85ae8"),
        (
            "torch-mnist-trainingjob",
            "9dcea839-3a99-4b6f-b594-620d79f8377d",
            "7a8f5d289c6d72e2",
        ),
        ("gpt-125m", "e2a69076-1c19-46ce-9c70-2cdf20176e01", "d02e22a691e645e0"),
    ],
)
def test_hash_is_the_one_of_three_recorded_jobs(job: str, uid: str, digest: str) -> None:
    assert f"{fnv1a64((job + uid).encode()):016x}" == digest
    assert child_names.hash5(job, uid) == digest[:5]
    assert child_names.base_name(job, uid) == f"{job}-{digest[:5]}"


def test_hash_keeps_leading_zeros() -> None:
    """About one job in sixteen has a hash that starts with 0."""
    uids = (f"{n * 7919:036}" for n in range(1000))
    uid = next(uid for uid in uids if fnv1a64(f"job{uid}".encode()) < 1 << 60)
    assert len(child_names.hash5("job", uid)) == 5
    assert child_names.hash5("job", uid).startswith("0")


def test_children_are_named_after_base_type_and_index() -> None:
    base = child_names.base_name("mnist", "422e8cc7-163f-4d49-9fb8-d059e490a09b")
    assert child_names.pod_name(base, "worker", 3) == "mnist-12e8d-worker-3"
    assert child_names.launcher_name(base) == "mnist-12e8d-launcher"
    assert child_names.ssh_secret_name(base) == "mnist-12e8d-ssh"
    assert child_names.hostfile_name(base) == "mnist-12e8d-hostfile"
    assert child_names.replica_service_name("mnist", "ps", 0) == "mnist-ps-0"


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("a", True),
        ("mnist-1", True),
        ("a" * 63, True),
        ("", False),
        ("1mnist", False),
        ("Mnist", False),
        ("mnist-", False),
        ("mnist.v1", False),
        ("mnist\n", False),
        ("a" * 64, False),
    ],
)
def test_dns_labels_start_with_a_letter_and_fit(name: str, valid: bool) -> None:
    assert is_dns_label(name) is valid


def test_loopback_addresses_stay_clear_of_the_host_s_own() -> None:
    addresses = {child_names.loopback_address(f"mnist-12e8d-worker-{n}") for n in range(500)}
    assert len(addresses) == 500
    for address in addresses:
        first, *rest = (int(part) for part in address.split("."))
        assert first == 127
        assert all(1 <= part <= 254 for part in rest)
