"""Refuses settings that a coordinator or a client would refuse."""

from collections.abc import Iterator

from muster.coordinator.group.configs import DAY_MS, EXPANSION_DELAY
from muster.coordinator.group.settings import INT32_MAX, GroupSettings
from muster.events.events import CoordinatorElected
from muster.replay.rerun.rerun import PERMISSIVE, group_settings
from muster.replay.text.times import instant
from muster.replay.whatif.alterations import Alterations


class SettingRefused(Exception):
    """A setting would be refused; the text has its name, its value, the limits and where they come from."""


def check(alterations: Alterations) -> None:
    """Check the limits that hold for every coordinator. Raises SettingRefused."""
    _check(alterations, PERMISSIVE, "no coordinator accepts less than 1")


def check_for(alterations: Alterations, elected: CoordinatorElected) -> None:
    """Check the limits in this coordinator's recorded settings. Raises SettingRefused."""
    whose = (
        "group.min.session.timeout.ms and group.max.session.timeout.ms of the coordinator that was elected at"
        f" {instant(elected.elected_ms)}; where it had others later, --since leaves it out"
    )
    _check(alterations, group_settings(elected.settings), whose)


def _check(alterations: Alterations, settings: GroupSettings, whose: str) -> None:
    for name, value, least, most, why in _limits(alterations, settings, whose):
        if value is not None and not least <= value <= most:
            raise SettingRefused(f"{name}={value} would be refused: give {least} to {most} ms ({why})")


def _limits(
    alterations: Alterations, settings: GroupSettings, whose: str
) -> Iterator[tuple[str, int | None, int, int, str]]:
    """Yield each setting with a limit: its name, value, minimum, maximum, and where the limit comes from."""
    least_ms = max(1, settings.min_session_timeout_ms)
    yield "session.timeout.ms", alterations.session_timeout_ms, least_ms, settings.max_session_timeout_ms, whose
    yield (
        "rebalance.timeout.ms",
        alterations.rebalance_timeout_ms,
        1,
        INT32_MAX,
        "it is the clients' max.poll.interval.ms, for which they accept no less than 1",
    )
    yield EXPANSION_DELAY, alterations.scale_up_delay_ms, 0, DAY_MS, "a day at most"
