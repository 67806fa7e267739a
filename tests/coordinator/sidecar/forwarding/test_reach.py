"""Reachability of owners: a takeover does not affect readiness; a network failure, or another secret, does."""

from muster.coordinator.peers.peer_metrics import LinkMetrics
from muster.coordinator.peers.peer_status import links_status
from muster.coordinator.sidecar.forwarding.assembly import OwnersReach
from tests.coordinator.sidecar.forwarding.stage import Stage, forwarding
from tests.waiting import until

TAKEOVER_MS = 15_000


class Clock:
    now_ms = 1_000

    def monotonic_ms(self) -> int:
        return self.now_ms


def reach_of(stage: Stage, clock: Clock) -> OwnersReach:
    return OwnersReach(
        lambda: stage.frontend.service.cluster, stage.links, monotonic_ms=clock.monotonic_ms, takeover_ms=TAKEOVER_MS
    )


async def test_a_process_that_reaches_an_owner_is_ready_and_one_that_loses_all_is_for_a_takeover() -> None:
    """After that the error has the addresses and their failures; when one is reachable again it is ready at once."""
    async with forwarding() as stage:
        clock = Clock()
        reach = reach_of(stage, clock)
        reach.check()
        assert (reach.not_ready or "", reach.lost_ms) == ("", 0)
        await stage.owner.end()
        await until(lambda: not stage.links.is_linked(stage.owner.node))
        reach.check()
        clock.now_ms += TAKEOVER_MS
        assert (reach.not_ready or "", reach.lost_ms) == ("", TAKEOVER_MS)
        clock.now_ms += 1
        reach.check()
        reported = reach.not_ready or ""
        assert reported.startswith("this process has reached no owner of a partition for 15 s; node 2 at 127.0.0.1:")
        stage.give_to(stage.frontend.service.cluster.node)
        reach.check()
        assert (reach.not_ready or "", reach.lost_ms) == ("", 0)


async def test_a_process_that_has_reached_no_owner_yet_is_not_ready() -> None:
    """It serves no client that it could lose; if there are no owners the error says so."""
    async with forwarding() as stage:
        stage.give_to(None)
        stage.links.follow([])
        reach = reach_of(stage, Clock())
        reach.check()
        assert reach.not_ready is not None
        assert "no process owns any: start one" in reach.not_ready


async def test_metrics_and_status_show_whether_each_owner_is_reached() -> None:
    async with forwarding() as stage:
        (reached,) = links_status(stage.links.states(), 0).to
        assert (reached.node_id, reached.reached, reached.error) == (2, True, "")
        await stage.owner.end()
        await until(lambda: links_status(stage.links.states(), 0).to[0].error)
        reported = links_status(stage.links.states(), 7_000)
        assert (reported.to[0].reached, reported.no_owner_reached_ms) == (False, 7_000)
        links, seconds = LinkMetrics(stage.links.states, lambda: 7_000).collect()
        assert {sample.labels["state"]: sample.value for sample in links.samples} == {"reached": 0, "not-reached": 1}
        assert [sample.value for sample in seconds.samples] == [7.0]
