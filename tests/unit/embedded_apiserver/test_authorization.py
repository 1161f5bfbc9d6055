"""What users of a shared cluster may do, in all that they may ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.apiserver.auth.authorization import Rights, Wish, mark
from trainyard.embedded.apiserver.auth.request_identity import OWNER, Identity, People
from trainyard.embedded.registry import Registry
from trainyard.embedded.tls_files import TokenError
from trainyard.embedded.user_tokens import UserTokens
from trainyard.kinds.shared import labels
from trainyard.kube.errors import ApiError, Forbidden
from trainyard.machine.ownership import Peer
from trainyard.machine.users import AllowList, User

BOB = Identity("bob", False, User(61002, 61002, "bob", groups=(61002,)))
JOBS = ("batch.tensorstack.dev", "pytorchtrainingjobs")


@pytest.fixture
async def rights() -> AsyncIterator[Rights]:
    """A cluster with the namespaces `bob` and `alice`, which are theirs, and `default`."""
    registry = Registry(resources=RESOURCES)
    await registry.ensure_system_objects()
    made = Rights(registry)
    await made.welcome(BOB)
    await made.welcome(Identity("alice", False, User(61001, 61001, "alice")))
    yield made
    await registry.close()


ALLOWED = [
    Wish("create", *JOBS, namespace="bob"),
    Wish("deletecollection", *JOBS, namespace="bob"),
    Wish("patch", *JOBS, "scale", "bob", "j"),
    Wish("get", "", "pods", "log", "bob", "p"),
    Wish("create", "", "pods", "exec", "bob", "p"),
    Wish("create", "", "pods", "eviction", "bob", "p"),
    Wish("get", "", "secrets", namespace="bob", name="s"),
    Wish("list", *JOBS),
    Wish("watch", "", "pods", namespace="alice"),
    Wish("get", *JOBS, "scale", "alice", "j"),
    Wish("list", "", "nodes"),
    Wish("create", "", "namespaces", name="bob-papers"),
    Wish("delete", "", "namespaces", name="bob"),
]
REFUSED = [
    Wish("create", *JOBS, namespace="alice"),
    Wish("create", *JOBS, namespace="default"),
    Wish("create", *JOBS),
    Wish("delete", *JOBS, namespace="alice", name="j"),
    Wish("patch", *JOBS, "scale", "alice", "j"),
    Wish("deletecollection", *JOBS),
    Wish("get", "", "pods", "log", "alice", "p"),
    Wish("get", "", "pods", "exec", "alice", "p"),
    Wish("get", "", "pods", "portforward", "alice", "p"),
    Wish("get", "", "secrets", namespace="alice", name="s"),
    Wish("list", "", "secrets"),
    Wish("watch", "", "secrets", namespace="default"),
    Wish("patch", "", "pods", "status", "bob", "p"),
    Wish("create", "", "pods", "binding", "bob", "p"),
    Wish("update", "", "namespaces", name="bob"),
    Wish("update", "", "namespaces", "finalize", name="bob"),
    Wish("delete", "", "namespaces", name="alice"),
    Wish("create", "", "namespaces", name="papers"),
    Wish("create", "", "namespaces", name="alice-papers"),
    Wish("create", "scheduler.tensorstack.dev", "queues", name="mine"),
    Wish("patch", "", "nodes", name="n"),
    Wish("get", "", "pods", "log", "bobby", "p"),
]


@pytest.mark.parametrize("wish", ALLOWED, ids=lambda wish: "-".join(filter(None, wish)))
async def test_what_is_allowed(rights: Rights, wish: Wish) -> None:
    assert rights.may(BOB, wish)
    assert rights.may(OWNER, wish)


@pytest.mark.parametrize("wish", REFUSED, ids=lambda wish: "-".join(filter(None, wish)))
async def test_what_is_refused(rights: Rights, wish: Wish) -> None:
    assert not rights.may(BOB, wish)
    assert rights.may(OWNER, wish)


async def test_a_refusal_has_the_words_of_kubernetes() -> None:
    here = Wish("get", "", "pods", "log", "alice", "p").refusal("bob")
    assert str(here) == (
        'pods "p" is forbidden: User "bob" cannot get resource "pods/log" in API group "" in the '
        'namespace "alice"'
    )
    assert "at the cluster scope" in str(Wish("list", "", "secrets").refusal("bob"))


def test_nobody_says_of_a_namespace_that_it_is_somebody_elses() -> None:
    forged = {labels.OWNER: "root", labels.OWNER_UID: "0", "note": "kept"}
    namespace = {"metadata": {"name": "bob-2", "annotations": forged}}
    mark(BOB, namespace)
    expected = {labels.OWNER: "bob", labels.OWNER_UID: "61002", "note": "kept"}
    assert namespace["metadata"]["annotations"] == expected
    with pytest.raises(Forbidden, match="called bob, or bob-SOMETHING"):
        mark(BOB, {"metadata": {"generateName": "alice-"}})


def test_the_kernel_tells_at_the_socket_who_asks_and_a_token_at_the_port(tmp_path: Path) -> None:
    people = People(AllowList(users=frozenset({61002})), UserTokens(tmp_path / "tokens"))
    bob = people.of_socket({}, Peer(1, 61002, 61002))
    assert bob is not None
    assert (bob.is_admin, bob.person.namespace) == (False, "user-61002")
    assert people.of_socket({}, Peer(1, 0, 0)) == OWNER
    with pytest.raises(ApiError, match=r"user 61003 may not use this cluster.*--allow-user 61003"):
        people.of_socket({}, Peer(1, 61003, 61003))
    at_port = people.of_port("owners")
    token = people.tokens.token_for(61002)
    assert at_port({"authorization": "Bearer owners"}, None) == OWNER
    assert at_port({"authorization": f"Bearer {token}"}, None) == bob
    for wrong in ("", "owners ", token[:-1], token.replace("61002", "0"), "0", "61002.0.", "²"):
        assert at_port({"authorization": f"Bearer {wrong}x"}, None) is None
    assert at_port({}, None) is None
    with pytest.raises(ApiError, match="may not use"):
        at_port({"authorization": f"Bearer {people.tokens.token_for(61003)}"}, None)


def test_without_a_list_and_a_key_nobody_has_a_token() -> None:
    people = People()
    assert not people.are_several
    token = people.tokens.token_for(0)
    assert people.of_port("owners")({"authorization": f"Bearer {token}"}, None) is None


def test_a_users_token_stays_the_same_until_it_is_renewed(tmp_path: Path) -> None:
    tokens = UserTokens(tmp_path / "tokens")
    first, other = tokens.token_for(7), tokens.token_for(8)
    assert UserTokens(tmp_path / "tokens").token_for(7) == first != other
    tokens.renew(7)
    again = UserTokens(tmp_path / "tokens")
    assert again.uid_of(first.encode()) is None
    assert again.uid_of(again.token_for(7).encode()) == 7
    assert again.uid_of(other.encode()) == 8
    assert (tmp_path / "tokens").stat().st_mode & 0o777 == 0o600
    assert first.encode() not in (tmp_path / "tokens").read_bytes()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"key": 1, "renewed": {}}'])
def test_a_damaged_key_is_named_with_the_fix(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokens").write_text(text)
    (tmp_path / "tokens").chmod(0o600)
    with pytest.raises(TokenError, match="remove the file"):
        UserTokens(tmp_path / "tokens")
