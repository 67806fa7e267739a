"""Scenarios by name: what a case is made of. Some are the fleet's, those in `scenarios/` are the judge's own."""

from collections.abc import Callable
from enum import StrEnum, unique
from typing import Any, Final

from muster.replay.fleet.simulation.stage import Play, Scenario, Wanted


@unique
class ScenarioSort(StrEnum):
    """A third of all cases are not plain."""

    PLAIN = "plain"
    COMPOUND = "compound"
    NEAR_MISS = "near miss"
    QUIET = "quiet"
    FLEET = "of a fleet's days"
    """Not among the judge's cases."""


NAMES: Final = {
    ScenarioSort.PLAIN: """
        slow-member dropped-member slow-leader leader-timed-out leader-dies-in-sync-phase unused-id crash restart
        restart-at-once crash-loop poll-timeout poll-timeout-with-reason unsubscribe-of-static
        unsubscribe-with-reason unsubscribe-soon frozen-soon slow-beat network-cut network-cut-of-all
        network-cut-for-good duel deployment deployment-by-crashes all-crash-and-restart deployment-at-once
        blue-green scale-up scale-down static-scale-down shutdown shutdown-and-start slow-start removed-by-admin
        group-deleted group-expired planned-registration planned-retirement planned-size planned-learners
        planned-release planned-release-and-adoption unknown subscription-change cooperative-round
        partitions-changed assignor-change assignor-deployment enforced-by-application enforced-again-and-again
        enforced-by-administrator coordinator-outage coordinator-paused coordinator-away coordinator-change capacity
        capacity-after-change refused static-restart-with-topics unknown-topic shutdown-of-both
        crash-loop-for-good killed-together
    """,
    ScenarioSort.COMPOUND: """
        two-crashes crash-in-deployment crash-after-deployment scaling-beside-restart crash-before-outage
        crash-and-newcomer cut-and-crash deployment-then-scale-up late-poll-after-deployment short-life
        deployment-and-scale-down outage-then-restart crash-beside-removal removal-right-after-leave
        crash-after-subscription-change lost-beginning clock-jump refused-beside-crash
    """,
    ScenarioSort.NEAR_MISS: """
        too-few-for-deployment too-slow-for-deployment newcomers-too-far-apart too-late-for-start
        newcomers-near-enough not-so-slow-member not-so-slow-leader two-restarts-of-one too-slow-for-loop
        too-late-for-restart two-crashes-no-cut too-late-for-blue-green not-quite-shutdown overlapping-restart
        frozen static-restart-with-topics-healed
    """,
    ScenarioSort.QUIET: """
        nothing absorbed-restart absorbed-deployment absorbed-crash-loop short-cut short-freeze clock-jump-at-rest
    """,
    ScenarioSort.FLEET: "rolling-deployment",
}
"""All of them by sort. Seeds draw from these lists: add a scenario at the end of its list, or other seeds change."""

SORT_OF: Final = {name: sort for sort, names in NAMES.items() for name in names.split()}


class JudgedScenario(Scenario, frozen=True, kw_only=True):
    """`play` does it to a group that has formed, and has been quiet, unless it `opens` the stage itself."""

    sort: ScenarioSort
    opens: bool = False
    cuts: int | None = None
    """The incident whose records are missing from the log, or unreadable; 0 is the start."""
    keeps_second_round: bool = False
    """True if they are present except in the first of its rebalances."""


OWN: Final[dict[str, JudgedScenario]] = {}
"""The judge's own, by name."""


def scenario(wanted: Wanted | None = None, **given: Any) -> Callable[[Play], Play]:
    """Register a function as one of the judge's own, under its name; `given`: fields of JudgedScenario."""

    def register(play: Play) -> Play:
        name = play.__name__.replace("_", "-")
        assert name not in OWN
        OWN[name] = JudgedScenario(name=name, sort=SORT_OF[name], wanted=wanted or Wanted(), play=play, **given)
        return play

    return register
