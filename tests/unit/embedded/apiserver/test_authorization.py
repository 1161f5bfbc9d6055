"""What users of a shared cluster may do, in all that they may ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.apiserver.auth.authorization import AccessRequest, Authorizer, mark_owner
from trainyard.embedded.apiserver.auth.request_identity import OWNER, Authenticator, Identity
from trainyard.embedded.registry import Registry
from trainyard.embedded.resources.resource import Object
from trainyard.embedded.tenants import owner_uid
from trainyard.embedded.tls_files import TokenError
from trainyard.embedded.user_tokens import UserTokens
from trainyard.kinds.shared import labels
from trainyard.kube.errors import ApiError, Forbidden
from trainyard.machine.ownership import Peer
from trainyard.machine.users import NOBODY_ELSE, AllowList, User

BOB = Identity("bob", False, User(61002, 61002, "bob", groups=(61002,)))
JOBS = ("batch.tensorstack.dev", "pytorchtrainingjobs")


@pytest.fixture
async def authorizer() -> AsyncIterator[Authorizer]:
    """A cluster with the namespaces `bob` and `alice`, which are theirs, and `default`."""
    registry = Registry(resources=RESOURCES)
    await registry.ensure_system_objects()
    made = Authorizer(registry)
    await made.ensure_namespace(BOB)
    await made.ensure_namespace(Identity("alice", False, User(61001, 61001, "alice")))
    yield made
    await registry.close()


ALLOWED = [
    AccessRequest("create", *JOBS, namespace="bob"),
    AccessRequest("deletecollection", *JOBS, namespace="bob"),
    AccessRequest("patch", *JOBS, "scale", "bob", "j"),
    AccessRequest("get", "", "pods", "log", "bob", "p"),
    AccessRequest("create", "", "pods", "exec", "bob", "p"),
    AccessRequest("create", "", "pods", "eviction", "bob", "p"),
    AccessRequest("get", "", "secrets", namespace="bob", name="s"),
    AccessRequest("list", *JOBS),
    AccessRequest("watch", "", "pods", namespace="alice"),
    AccessRequest("get", *JOBS, "scale", "alice", "j"),
    AccessRequest("list", "", "nodes"),
    AccessRequest("create", "", "namespaces", name="bob-papers"),
    AccessRequest("delete", "", "namespaces", name="bob"),
]
REFUSED = [
    AccessRequest("create", *JOBS, namespace="alice"),
    AccessRequest("create", *JOBS, namespace="default"),
    AccessRequest("create", *JOBS),
    AccessRequest("delete", *JOBS, namespace="alice", name="j"),
    AccessRequest("patch", *JOBS, "scale", "alice", "j"),
    AccessRequest("deletecollection", *JOBS),
    AccessRequest("get", "", "pods", "log", "alice", "p"),
    AccessRequest("get", "", "pods", "exec", "alice", "p"),
    AccessRequest("get", "", "pods", "portforward", "alice", "p"),
    AccessRequest("get", "", "secrets", namespace="alice", name="s"),
    AccessRequest("list", "", "secrets"),
    AccessRequest("watch", "", "secrets", namespace="default"),
    AccessRequest("patch", "", "pods", "status", "bob", "p"),
    AccessRequest("create", "", "pods", "binding", "bob", "p"),
    AccessRequest("update", "", "namespaces", name="bob"),
    AccessRequest("update", "", "namespaces", "finalize", name="bob"),
    AccessRequest("delete", "", "namespaces", name="alice"),
    AccessRequest("create", "", "namespaces", name="papers"),
    AccessRequest("create", "", "namespaces", name="alice-papers"),
    AccessRequest("create", "scheduler.tensorstack.dev", "queues", name="mine"),
    AccessRequest("patch", "", "nodes", name="n"),
    AccessRequest("get", "", "pods", "log", "bobby", "p"),
]


@pytest.mark.parametrize("access", ALLOWED, ids=lambda access: "-".join(filter(None, access)))
async def test_what_is_allowed(authorizer: Authorizer, access: AccessRequest) -> None:
    assert authorizer.is_allowed(BOB, access)
    assert authorizer.is_allowed(OWNER, access)


@pytest.mark.parametrize("access", REFUSED, ids=lambda access: "-".join(filter(None, access)))
async def test_what_is_refused(authorizer: Authorizer, access: AccessRequest) -> None:
    assert not authorizer.is_allowed(BOB, access)
    assert authorizer.is_allowed(OWNER, access)


async def test_a_refusal_has_the_words_of_kubernetes() -> None:
    here = AccessRequest("get", "", "pods", "log", "alice", "p").refusal("bob")
    assert str(here) == (
        'pods "p" is forbidden: User "bob" cannot get resource "pods/log" in API group "" in the '
        'namespace "alice"'
    )
    assert "at the cluster scope" in str(AccessRequest("list", "", "secrets").refusal("bob"))


def test_nobody_says_of_a_namespace_that_it_is_somebody_elses() -> None:
    forged = {labels.OWNER: "root", labels.OWNER_UID: "0", "note": "kept"}
    namespace = {"metadata": {"name": "bob-2", "annotations": forged}}
    mark_owner(BOB, namespace, NOBODY_ELSE)
    expected = {labels.OWNER: "bob", labels.OWNER_UID: "61002", "note": "kept"}
    assert namespace["metadata"]["annotations"] == expected
    with pytest.raises(Forbidden, match="called bob, or bob-SOMETHING"):
        mark_owner(BOB, {"metadata": {"generateName": "alice-"}}, NOBODY_ELSE)


@pytest.mark.parametrize("name", ["user-1234201103", "nobody"])
def test_a_users_namespace_is_theirs_though_the_owner_makes_it_first(name: str) -> None:
    """Else the user is nobody there, and what is submitted there runs as the cluster's owner."""
    uid = 65534 if name == "nobody" else 1_234_201_103
    namespace: Object = {"metadata": {"name": name}}
    mark_owner(OWNER, namespace, AllowList(frozenset({uid})))
    assert owner_uid(namespace) == uid
    mine: Object = {"metadata": {"name": name}}
    mark_owner(OWNER, mine, NOBODY_ELSE)
    assert owner_uid(mine) is None


def test_the_kernel_tells_at_the_socket_who_asks_and_a_token_at_the_port(tmp_path: Path) -> None:
    authenticator = Authenticator(
        AllowList(users=frozenset({61002})), UserTokens(tmp_path / "tokens")
    )
    bob = authenticator.by_socket_peer({}, Peer(1, 61002, 61002))
    assert bob is not None
    assert (bob.is_admin, bob.user.namespace) == (False, "user-61002")
    assert authenticator.by_socket_peer({}, Peer(1, 0, 0)) == OWNER
    with pytest.raises(ApiError, match=r"user 61003 may not use this cluster.*--allow-user 61003"):
        authenticator.by_socket_peer({}, Peer(1, 61003, 61003))
    at_port = authenticator.by_bearer_token("owners")
    token = authenticator.tokens.token_for(61002)
    assert at_port({"authorization": "Bearer owners"}, None) == OWNER
    assert at_port({"authorization": f"Bearer {token}"}, None) == bob
    for wrong in ("", "owners ", token[:-1], token.replace("61002", "0"), "0", "61002.0.", "²"):
        assert at_port({"authorization": f"Bearer {wrong}x"}, None) is None
    assert at_port({}, None) is None
    with pytest.raises(ApiError, match="may not use"):
        at_port({"authorization": f"Bearer {authenticator.tokens.token_for(61003)}"}, None)


def test_without_a_list_and_a_key_nobody_has_a_token() -> None:
    authenticator = Authenticator()
    assert not authenticator.has_other_users
    token = authenticator.tokens.token_for(0)
    assert (
        authenticator.by_bearer_token("owners")({"authorization": f"Bearer {token}"}, None) is None
    )


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
