"""A store lags behind the cluster, but never behind what the controller itself has done."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from trainyard.operator.reconcile.object_cache import NamespaceView, ObjectCache


@dataclass(frozen=True)
class Item:
    """The least that a store needs."""

    name: str
    uid: str
    resource_version: str
    owner: str = "job"
    namespace: str = "default"


@pytest.fixture
def changed() -> list[str]:
    return []


@pytest.fixture
def store(changed: list[str]) -> ObjectCache[Item]:
    return ObjectCache(lambda item: item.owner, lambda item: changed.append(item.uid))


def names(store: ObjectCache[Item]) -> list[str]:
    return sorted(
        f"{item.name}@{item.resource_version}" for item in store.owned_by("default", "job")
    )


def test_objects_are_found_by_name_and_by_owner(store: ObjectCache[Item]) -> None:
    store.upsert(Item("a", "1", "5"))
    store.upsert(Item("b", "2", "6", owner="other"))
    assert store.get("default", "b") == Item("b", "2", "6", owner="other")
    assert names(store) == ["a@5"]


def test_an_own_write_is_seen_at_once_and_not_reported(
    store: ObjectCache[Item], changed: list[str]
) -> None:
    store.record_own_write(Item("a", "1", "5"))
    assert names(store) == ["a@5"]
    store.upsert(Item("a", "1", "5"))  # its echo
    assert changed == []


def test_old_news_do_not_overwrite_an_own_write(store: ObjectCache[Item]) -> None:
    store.upsert(Item("a", "1", "5"))
    store.record_own_write(Item("a", "1", "9"))
    store.upsert(Item("a", "1", "7"))
    assert names(store) == ["a@9"]


def test_versions_are_compared_as_numbers(store: ObjectCache[Item]) -> None:
    store.upsert(Item("a", "1", "9"))
    store.upsert(Item("a", "1", "10"))
    assert names(store) == ["a@10"]


def test_what_was_found_gone_does_not_come_back(store: ObjectCache[Item]) -> None:
    store.upsert(Item("a", "1", "5"))
    store.forget(Item("a", "1", "5"))
    store.upsert(Item("a", "1", "6"))
    assert names(store) == []
    store.upsert(Item("a", "2", "8"))
    assert names(store) == ["a@8"]


def test_a_late_deletion_leaves_the_successor_of_the_same_name(store: ObjectCache[Item]) -> None:
    store.upsert(Item("a", "1", "5"))
    store.record_own_write(Item("a", "2", "8"))
    store.remove(Item("a", "1", "7"))
    assert names(store) == ["a@8"]


def test_the_answer_to_a_creation_is_void_once_its_deletion_was_seen(
    store: ObjectCache[Item],
) -> None:
    store.upsert(Item("a", "1", "5"))
    store.remove(Item("a", "1", "6"))
    store.record_own_write(Item("a", "1", "5"))
    assert names(store) == []


def test_a_new_list_drops_what_it_does_not_hold(
    store: ObjectCache[Item], changed: list[str]
) -> None:
    store.upsert(Item("a", "1", "5"))
    store.upsert(Item("b", "2", "6"))
    changed.clear()
    store.replace([Item("b", "2", "6")], "9")
    assert names(store) == ["b@6"]
    assert changed == ["1"]


def test_a_new_list_keeps_what_was_written_after_it_was_made(store: ObjectCache[Item]) -> None:
    store.record_own_write(Item("a", "1", "12"))
    store.replace([], "10")
    assert names(store) == ["a@12"]


def test_an_object_that_changed_owner_is_found_under_the_new_one(store: ObjectCache[Item]) -> None:
    store.upsert(Item("a", "1", "5"))
    store.upsert(Item("a", "1", "6", owner="other"))
    assert names(store) == []
    assert [item.name for item in store.owned_by("default", "other")] == ["a"]


def test_an_object_belongs_to_an_owner_of_its_own_namespace_only(store: ObjectCache[Item]) -> None:
    """Whoever may create objects elsewhere can write any UID into them."""
    store.upsert(Item("a", "1", "5"))
    store.upsert(Item("a", "2", "6", namespace="elsewhere"))
    assert [item.uid for item in store.owned_by("default", "job")] == ["1"]
    assert [item.uid for item in store.owned_by("elsewhere", "job")] == ["2"]
    store.remove(Item("a", "2", "7", namespace="elsewhere"))
    assert [item.uid for item in store.owned_by("default", "job")] == ["1"]


def test_a_list_of_one_namespace_says_nothing_of_others(changed: list[str]) -> None:
    store: ObjectCache[Item] = ObjectCache(lambda item: item.owner, lambda i: changed.append(i.uid))
    first, second = NamespaceView(store, "a"), NamespaceView(store, "b")
    first.replace([Item("x", "1", "5", namespace="a")], "6")
    second.replace([Item("x", "2", "7", namespace="b"), Item("y", "3", "7", namespace="b")], "8")
    first.replace([], "9")
    second.remove(Item("y", "3", "10", namespace="b"))
    assert [(item.namespace, item.name) for item in store] == [("b", "x")]


def test_a_watch_of_one_namespace_may_be_behind_that_of_another() -> None:
    """What was written in the one that lags has not been seen to be gone."""
    store: ObjectCache[Item] = ObjectCache(
        lambda item: item.owner, lambda item: None, by_namespace=True
    )
    NamespaceView(store, "ahead").replace([], "100")
    NamespaceView(store, "behind").replace([], "50")
    store.record_own_write(Item("new", "1", "80", namespace="behind"))
    store.record_own_write(Item("gone", "2", "80", namespace="ahead"))
    assert [item.name for item in store] == ["new"]
