"""Users of the machine: their namespaces, and who is let in."""

from __future__ import annotations

import os

import pytest

from trainyard.machine.users import (
    NOBODY,
    NOBODY_ELSE,
    AllowList,
    User,
    gid_of,
    namespace_of,
    parse_id,
    uid_of,
    user_with_uid,
)


@pytest.mark.parametrize(
    ("name", "uid", "namespace"),
    [
        ("alice", 1001, "alice"),
        ("svc-train", 7, "svc-train"),
        ("John.Doe", 1002, "john-doe-1002"),
        ("a_b", 1003, "a-b-1003"),
        ("4242", 4242, "user-4242"),
        ("default", 9, "default-9"),
        ("kube-system", 10, "kube-system-10"),
        ("-x", 11, "x-11"),
        ("日本", 12, "user-12"),
        ("y" * 70, 13, "y" * 50 + "-13"),
    ],
)
def test_a_users_namespace_is_a_dns_label_that_no_other_user_has(
    name: str, uid: int, namespace: str
) -> None:
    assert namespace_of(name, uid) == namespace


def test_a_user_whom_the_machine_does_not_know_is_in_no_group() -> None:
    stranger = user_with_uid(4_000_123)
    assert stranger == User(4_000_123, NOBODY, "4000123", groups=())
    assert not AllowList(groups=frozenset({NOBODY})).admits(stranger)
    assert user_with_uid(os.getuid()).uid == os.getuid()


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("1234201103", 1_234_201_103),
        ("4294967294", 4_294_967_294),
        ("4294967295", None),  # -1, which system calls take for "leave it as it is"
        ("9999999999", None),
        ("10000000000", None),
        ("9" * 5000, None),
        ("", None),
        ("-1", None),
        ("1 ", None),
        ("1\n", None),
        ("1.0", None),
        ("٣", None),
        ("²", None),
    ],
)
def test_ids_are_those_that_the_kernel_has(text: str, number: int | None) -> None:
    assert parse_id(text) == number
    assert uid_of(text) == gid_of(text) == number


def test_users_are_let_in_by_name_or_by_one_of_their_groups() -> None:
    bob = User(7, 8, "bob", groups=(8, 9))
    assert AllowList(users=frozenset({7})).admits(bob)
    assert AllowList(groups=frozenset({9})).admits(bob)
    assert not AllowList(frozenset({8}), frozenset({7})).admits(bob)
    assert not NOBODY_ELSE.admits(bob)
