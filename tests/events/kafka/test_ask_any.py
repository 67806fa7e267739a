"""A request that any broker may answer: the result if some of them, or all, fail."""

import random
from typing import Any

import pytest

from muster.events.kafka.addresses import BrokerAddress
from muster.events.kafka.errors import LinkError, LinkRefused, OwnShortage, TryAgain
from muster.events.kafka.link import ClusterLink
from muster.events.kafka.metadata import ClusterView
from muster.events.kafka.requests import api_versions
from muster.events.kafka.security import NOT_SECURED
from tests.faults.process import story

QUESTION = api_versions()
PORTS = (1, 2)


class Link(ClusterLink):
    """Two brokers; `failures` are those of the failing ones, by port. `refusals` are reported if others respond."""

    def __init__(self, failures: dict[int, LinkError]) -> None:
        super().__init__(
            [BrokerAddress("broker", port) for port in PORTS],
            NOT_SECURED,
            ClusterView(),
            connect_timeout_ms=1_000,
            request_timeout_ms=1_000,
            metadata_max_age_ms=1_000,
        )
        self.failures = failures
        self.refusals: list[str] | None = None
        self._connections.ask = self._asked  # type: ignore[method-assign]

    async def _asked(self, address: BrokerAddress, *_: Any, **__: Any) -> str:
        if address.port in self.failures:
            raise self.failures[address.port]
        return f"answer of {address.port}"

    def _refused_by_some(self, refusals: Any) -> None:
        self.refusals = list(map(str, refusals))


@pytest.mark.parametrize(
    ("failures", "raised"),
    [
        ((TryAgain("away"), TryAgain("away, too")), TryAgain),
        ((TryAgain("away"), LinkRefused("not let in")), TryAgain),
        ((LinkRefused("not let in"), LinkRefused("nor here")), LinkRefused),
        ((OwnShortage("no files left"), OwnShortage("no files left")), OwnShortage),
        ((OwnShortage("no files left"), TryAgain("away")), TryAgain),
    ],
    ids=["all away", "one away", "all refuse", "none of ours left", "one of each"],
)
@story
async def test_transient_errors_are_retried_and_a_common_error_is_raised(
    failures: tuple[LinkError, LinkError], raised: type[LinkError]
) -> None:
    """A refusal is final if no other broker might accept us; a shortage is ours only if there is nothing else."""
    with pytest.raises(raised) as reported:
        await Link(dict(zip(PORTS, failures, strict=True))).ask_any(QUESTION)
    assert type(reported.value) is raised
    assert all(str(failure) in str(reported.value) for failure in failures)


@story
async def test_a_refusal_is_logged_while_another_server_responds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is merely down is not reported."""
    monkeypatch.setattr(random, "shuffle", lambda _: None)
    for failure, reported in ((LinkRefused("not let in"), ["not let in"]), (TryAgain("away"), [])):
        link = Link({1: failure})
        assert await link.ask_any(QUESTION) == "answer of 2"
        assert link.refusals == reported


@story
async def test_no_broker_is_always_the_first() -> None:
    """A broker may lag behind, and would be believed each time."""
    link = Link({})
    link._view.brokers = dict(enumerate(link._bootstrap))
    assert {await link.ask_any(QUESTION) for _ in range(100)} == {"answer of 1", "answer of 2"}
