"""Quotas by key: the limit for each key, and how often refusals are logged."""

import pytest

from muster.coordinator.load.quotas import Quota


def test_each_key_has_the_limit_of_places() -> None:
    """A released place can be taken again; beyond the limit there are more places if the caller forces it."""
    quota = Quota[str](2, lambda _: None)
    assert [quota.acquire("a") for _ in range(3)] == [True, True, False]
    assert quota.acquire("b")
    quota.release("a")
    assert quota.acquire("a")
    assert quota.acquire("a", beyond=True)
    assert quota.most() == ("a", 3)


@pytest.mark.parametrize(("released", "told"), [(2, ["a"]), (3, ["a", "a"])])
def test_a_refusal_is_logged_again_after_a_tenth_was_free(released: int, told: list[str]) -> None:
    """A client that reconnects after each refusal causes one line."""
    refused: list[str] = []
    quota = Quota[str](20, refused.append)
    for _ in range(22):
        quota.acquire("a")
    assert refused == ["a"]
    for _ in range(released):
        quota.release("a")
    for _ in range(released + 1):
        quota.acquire("a")
    assert refused == told
