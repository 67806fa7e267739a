"""Following a move through the admin API."""

from collections.abc import Mapping, Sequence

import msgspec
import pytest
from kio.schema.describe_groups.v6.response import DescribedGroup, DescribedGroupMember
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId

from muster.coordinator.client import group_moves
from muster.coordinator.client.coordinator_link import (
    AdminError,
    NoCoordinator,
    NotCoordinatedHere,
    Refused,
    UpstreamAlready,
)
from muster.coordinator.client.group_admin import ConfigEntry, GroupAdmin
from muster.coordinator.client.group_moves import coordinator_of, count_movers, groups_of_muster, move_group, try_move
from muster.coordinator.group.configs import COORDINATOR, COORDINATOR_TIMEOUT, MEMBERS, MOVE, MUSTER, UPSTREAM
from muster.coordinator.group.outcomes import GroupMove, ListedMember, MoveState, Standing
from muster.events.ids import GroupInstanceId, MemberId


def report(*, told: int, back: int = 0, left: int = 0, state: MoveState = MoveState.MOVING) -> GroupMove:
    return GroupMove(to=UPSTREAM, state=state, members=2, told=told, back=back, left=left, took_ms=0)


class OneMove(GroupAdmin):
    """A sidecar with one move, whose report advances by one step at each request."""

    def __init__(self, *reports: GroupMove | None) -> None:
        super().__init__("127.0.0.1:1")
        self._reports = [None, *reports]
        self.altered: list[Mapping[str, str | None]] = []

    async def describe_group_config(self, group_id: str, names: Sequence[str] = ()) -> tuple[ConfigEntry, ...]:
        now = self._reports.pop(0)
        return (
            ()
            if now is None
            else (ConfigEntry(name=MOVE, value=msgspec.json.encode(now).decode(), is_set=True, documentation=""),)
        )

    async def alter_group_config(
        self, group_id: str, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        self.altered.append(configs)


async def test_each_step_of_a_move_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that leaves is a step, like one that was notified or has rejoined."""
    monkeypatch.setattr(group_moves, "POLL_INTERVAL_S", 0.0)
    steps = [report(told=1), report(told=1, left=1), report(told=1, back=1, left=1)]
    seen: list[GroupMove] = []
    last = report(told=1, back=1, left=1, state=MoveState.DONE)
    async with OneMove(steps[0], steps[0], *steps[1:], last) as admin:
        assert await move_group(admin, "orders", UPSTREAM, report=seen.append) == last
    assert seen == steps


async def test_a_sidecar_that_stops_responding_is_reported_with_how_to_follow_the_move() -> None:
    """Its cluster may hang while the move continues."""

    class Silent(OneMove):
        async def describe_group_config(self, group_id: str, names: Sequence[str] = ()) -> tuple[ConfigEntry, ...]:
            if not self._reports:
                raise NoCoordinator("nobody answers")
            return await super().describe_group_config(group_id, names)

    async with Silent(report(told=1)) as admin:
        goes_on = "nobody answers; the move continues, unless the sidecar has ended: muster members list orders"
        with pytest.raises(AdminError, match=goes_on):
            await move_group(admin, "orders", UPSTREAM)


async def test_a_group_that_is_already_there_has_moved_no_members() -> None:
    """The sidecar accepts the config and has no move to report."""
    async with OneMove(None) as admin:
        done = GroupMove(to=UPSTREAM, state=MoveState.DONE, members=0, told=0, back=0, took_ms=0)
        assert await move_group(admin, "orders", UPSTREAM) == done


@pytest.mark.parametrize(
    ("to", "protocol_type", "is_newer", "told"),
    [
        (UPSTREAM, "consumer", False, "are upstream already: there is nothing to release"),
        (MUSTER, "consumer", False, "adopt the group with muster adopt orders"),
        (UPSTREAM, "muster", False, "is coordinated by another Muster: ask that one"),
        (
            UPSTREAM,
            "consumer",
            True,
            "is not a classic group, but one of the newer type consumer, coordinated upstream",
        ),
    ],
)
async def test_releasing_a_group_of_the_cluster_does_not_advise_adoption(
    to: str, protocol_type: str, is_newer: bool, told: str
) -> None:
    class Elsewhere(OneMove):
        async def alter_group_config(
            self, group_id: str, configs: Mapping[str, str | None], *, validate_only: bool = False
        ) -> None:
            raise NotCoordinatedHere(group_id, protocol_type, is_newer=is_newer)

    async with Elsewhere() as admin:
        with pytest.raises(Refused, match=told) as raised:
            await try_move(admin, "orders", to)
    assert isinstance(raised.value, UpstreamAlready) == (told.endswith("release"))


@pytest.mark.parametrize("stays", [True, False])
async def test_an_earlier_move_is_not_reported_as_this_one(stays: bool) -> None:
    """The old report may still be there, or be lost with the process that made it."""
    former = report(told=3, back=3, state=MoveState.DONE)
    async with OneMove(former if stays else None) as admin:
        admin._reports[0] = former
        assert (await move_group(admin, "orders", UPSTREAM)).members == 0


@pytest.mark.parametrize(
    ("timeout_ms", "also_set"), [(None, {}), (0, {COORDINATOR_TIMEOUT: "0"}), (60_000, {COORDINATOR_TIMEOUT: "60000"})]
)
async def test_the_timeout_is_set_with_the_move(timeout_ms: int | None, also_set: Mapping[str, str]) -> None:
    """In the same request, so that it holds from the start of the move; without a time-out the config is unchanged."""
    async with OneMove(None) as admin:
        await move_group(admin, "orders", MUSTER, timeout_ms=timeout_ms)
        assert admin.altered == [{COORDINATOR: MUSTER, **also_set}]


def listed(member_id: str) -> ListedMember:
    """A row of the list; without a member id it is an expected instance."""
    return ListedMember(
        group_instance_id=GroupInstanceId("w-1"),
        member_id=MemberId(member_id),
        client_id="",
        client_host="",
        standing=Standing.ACTIVE if member_id else Standing.EXPECTED,
        retiring=False,
        is_leader=False,
        session_left_ms=None,
        since_ms=0,
    )


class OneGroup(GroupAdmin):
    """A sidecar with one group: the members listed here, and the number that the upstream cluster describes."""

    def __init__(self, *here: ListedMember, upstream: int = 0) -> None:
        super().__init__("127.0.0.1:1")
        self.checked: list[str] = []
        self._values = {COORDINATOR: MUSTER, MEMBERS: msgspec.json.encode(here).decode()}
        member = DescribedGroupMember(
            member_id="m", client_id="", client_host="", member_metadata=b"", member_assignment=b""
        )
        self._upstream = DescribedGroup(
            error_code=ErrorCode.none,
            group_id=GroupId("orders"),
            group_state="Stable",
            protocol_type="consumer",
            protocol_data="range",
            members=(member,) * upstream,
        )

    async def describe_group_config(self, group_id: str, names: Sequence[str] = ()) -> tuple[ConfigEntry, ...]:
        values = self._values.items()
        return tuple(ConfigEntry(name=name, value=value, is_set=True, documentation="") for name, value in values)

    async def describe_group(self, group_id: str) -> DescribedGroup:
        return self._upstream

    async def check_is_muster(self, group_id: str) -> None:
        self.checked.append(group_id)

    async def list_groups(self) -> frozenset[str]:
        return frozenset({"orders"})


async def test_an_expected_instance_is_not_a_moving_member() -> None:
    """Live members upstream have to rejoin although one is expected here, and only members leave."""
    async with OneGroup(listed(""), upstream=2) as admin:
        assert await count_movers(admin, "orders", MUSTER) == 2
        assert await count_movers(admin, "orders", UPSTREAM) == 0
        whose = await coordinator_of(admin, "orders")
        assert (whose.coordinator, whose.text) == (
            UPSTREAM,
            "coordinated by the cluster upstream: it has its members there",
        )
        assert (await groups_of_muster(admin)).group_ids == []
        assert admin.checked == ["orders"], "a group that is there, as the rights may be to some alone"
    async with OneGroup(listed(""), listed("a"), listed("b")) as admin:
        assert await count_movers(admin, "orders", UPSTREAM) == 2
        assert await count_movers(admin, "orders", MUSTER) == 0
        assert (await groups_of_muster(admin)).group_ids == ["orders"]
