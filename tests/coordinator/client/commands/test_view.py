"""The tables of `muster members`, as wide as the terminal."""

from io import StringIO

import msgspec
import pytest
from rich.console import Console

from muster.coordinator.client.commands.view import print_configs, print_members
from muster.coordinator.client.group_admin import ConfigEntry
from muster.coordinator.group.configs import GROUP_CONFIGS
from muster.coordinator.group.outcomes import ListedMember, Standing
from muster.events.ids import GroupInstanceId, MemberId

NARROW, WIDE = 119, 120

MEMBER = ListedMember(
    group_instance_id=GroupInstanceId("web-1"),
    member_id=MemberId("web-1-x"),
    client_id="shop",
    client_host="/10.0.0.1",
    standing=Standing.ACTIVE,
    retiring=True,
    is_leader=True,
    session_left_ms=9_500,
    since_ms=86_400_000,
)


def console(width: int) -> tuple[Console, StringIO]:
    printed = StringIO()
    return Console(file=printed, width=width, color_system=None), printed


@pytest.mark.parametrize(
    ("width", "rows"),
    [
        (WIDE, ["web-1 web-1-x shop 10.0.0.1 Active, leader, retiring 9.5 s 1970-01-02 00:00:00"]),
        (NARROW, ["web-1 1970-01-02 00:00:00 shop Active, leader, retiring", "web-1-x 10.0.0.1 9.5 s"]),
    ],
)
def test_a_member_has_one_line_if_it_fits_and_two_otherwise(width: int, rows: list[str]) -> None:
    shown, printed = console(width)
    print_members("orders", [MEMBER], shown)
    assert [" ".join(line.split()) for line in printed.getvalue().splitlines()[2:]] == rows


def test_a_member_id_is_in_one_piece_at_80_columns() -> None:
    """The standing column shrinks, not the id that users copy; a longer id shrinks as well."""
    shown, printed = console(80)
    member_id = MemberId("web-0-4a9c0b98-9f79-4536-acc3-66383fe28a6a")
    far = msgspec.structs.replace(MEMBER, client_host="/192.168.100.100")
    print_members("orders", [msgspec.structs.replace(far, member_id=member_id)], shown)
    assert member_id in printed.getvalue()
    long = MemberId("w" * 60 + "-4a9c0b98-9f79-4536-acc3-66383fe28a6a")
    print_members("orders", [msgspec.structs.replace(far, member_id=long)], shown)
    assert "…" not in printed.getvalue()
    assert max(map(len, printed.getvalue().splitlines())) <= 80


@pytest.mark.parametrize(("is_upstream", "where"), [(False, ""), (True, " at this Muster")])
def test_a_released_group_is_not_reported_as_having_no_members(is_upstream: bool, where: str) -> None:
    """They are upstream, and not listed here."""
    shown, printed = console(NARROW)
    print_members("orders", [], shown, is_upstream=is_upstream)
    assert printed.getvalue() == f"Group orders has no members{where}, and none is expected.\n"


@pytest.mark.parametrize(
    ("left", "said"),
    [(None, "-"), (4_000, "waits for the join, up to 4.0 s"), (272_000, "waits for the join, up to 4 min 32 s")],
)
def test_a_member_without_a_session_may_be_in_the_join_phase(left: int | None, said: str) -> None:
    shown, printed = console(200)
    member = msgspec.structs.replace(
        MEMBER, group_instance_id=None, retiring=False, is_leader=False, session_left_ms=None, join_left_ms=left
    )
    print_members("orders", [member], shown)
    row = " ".join(printed.getvalue().splitlines()[2].split())
    assert row == f"- web-1-x shop 10.0.0.1 Active {said} 1970-01-02 00:00:00"


@pytest.mark.parametrize(("width", "does"), [(WIDE, ["how many members"]), (NARROW, [])])
def test_settings_are_explained_if_they_fit(width: int, does: list[str]) -> None:
    shown, printed = console(width)
    entry = ConfigEntry(name="group.max.size", value="5", is_set=True, documentation="how many members")
    print_configs([entry], shown)
    assert " ".join(printed.getvalue().splitlines()[2].split()) == " ".join(["group.max.size 5 this group", *does])


def test_musters_own_configs_come_first_and_a_brokers_documentation_has_no_markup() -> None:
    """A sidecar describes the broker's configs too: sorted by name, with documentation in HTML."""
    html = "The assignor.<p>The <code>range</code> one &amp; <a href='#x'>more</a>:</p><ul><li>a</li><li>b &lt; c</ul>"
    names = ("consumer.session.timeout.ms", *reversed([*GROUP_CONFIGS]), "share.auto.offset.reset")
    configs = [ConfigEntry(name=name, value="1", is_set=False, documentation=html) for name in names]
    shown, printed = console(200)
    print_configs(configs, shown)
    output = [line.split()[0] for line in printed.getvalue().splitlines() if "." in line.split(" ")[0]]
    assert output == [*GROUP_CONFIGS, "consumer.session.timeout.ms", "share.auto.offset.reset"]
    assert "The assignor. The range one & more: - a - b < c" in printed.getvalue()
    assert "<p>" not in printed.getvalue()


def test_documentation_that_is_not_html_is_unchanged() -> None:
    """A comparison sign is not a tag."""
    entry = ConfigEntry(name="target.group.size", value="1", is_set=True, documentation="From 0 < n <= 9 on.")
    shown, printed = console(200)
    print_configs([entry], shown)
    assert "From 0 < n <= 9 on." in printed.getvalue()
