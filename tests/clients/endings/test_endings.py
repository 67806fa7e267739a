"""Tests of the experiment's parts, and of one client, which behaves as on the page. The whole: see the package."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.brokers.broker import HOST
from tests.clients.endings.acts import Watched, watch
from tests.clients.endings.facts import Fact, fact_of
from tests.clients.endings.frames import SeenRequest, read_request
from tests.clients.endings.given import Act, Family, Trial, Way
from tests.clients.endings.member import settings_of
from tests.clients.endings.page import PAGE, written
from tests.clients.endings.places import place
from tests.clients.endings.process import ClientEnded, client_process
from tests.clients.endings.recorded import read_facts, write_facts
from tests.clients.endings.recorder import Ended, Recorder, SeenConnection
from tests.conformance.wire import API_KEYS, _request
from tests.waiting import until_so

pytestmark = pytest.mark.clients

WITHIN_S = 20


@contextmanager
def recorded() -> Iterator[tuple[Recorder, socket.socket, socket.socket]]:
    """A recorder, a client's socket to it, and the coordinator's socket behind it."""
    with socket.create_server((HOST, 0)) as coordinator, socket.create_server((HOST, 0)) as listener:
        recorder = Recorder(f"{HOST}:{coordinator.getsockname()[1]}")
        with recorder.serving(listener):
            client = socket.create_connection(listener.getsockname(), WITHIN_S)
            coordinator.settimeout(WITHIN_S)
            behind, _ = coordinator.accept()
            behind.settimeout(WITHIN_S)
            with client, behind:
                yield recorder, client, behind


def test_the_recorder_notes_a_fin_and_passes_it_on() -> None:
    """The coordinator sees the end of the stream."""
    with recorded() as (recorder, client, behind):
        client.close()
        assert behind.recv(1) == b""
        assert [each.ended for each in recorder.connections] == [Ended.FIN]


def test_the_recorder_notes_a_reset_and_passes_it_on() -> None:
    """The coordinator sees a reset."""
    with recorded() as (recorder, client, behind):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        with pytest.raises(ConnectionResetError):
            behind.recv(1)
        assert [each.ended for each in recorder.connections] == [Ended.RST]


def test_an_end_that_the_coordinator_made_is_not_the_clients() -> None:
    """It is recorded separately."""
    with recorded() as (recorder, client, behind):
        behind.close()
        assert client.recv(1) == b""
        client.close()
        (seen,) = recorder.connections
        assert seen.server_ended_ms is not None
        assert seen.ended is None


def test_requests_are_noted_with_their_answers() -> None:
    """In their order; a Heartbeat is decoded, a Fetch only named."""
    heartbeat = {"group_id": "g", "generation_id": 3, "member_id": "m", "group_instance_id": "i"}
    requested = _request(API_KEYS["Heartbeat"], 4, 7, "client", heartbeat)
    answer = struct.pack(">ibihb", 7, 0, 0, 25, 0)  # correlation, tags, throttled, UNKNOWN_MEMBER_ID, tags
    with recorded() as (recorder, client, behind):
        client.sendall(struct.pack(">i", len(requested)) + requested)
        behind.recv(1_000)
        behind.sendall(struct.pack(">i", len(answer)) + answer)
        client.recv(1_000)
        (connection,) = recorder.of("client")
        (request,) = connection.requests
        assert (request.api, request.version, request.body["member_id"], request.error) == ("Heartbeat", 4, "m", 25)


def test_an_unknown_request_version_is_named() -> None:
    """Its client id is read all the same: clients first send ApiVersions in their newest version."""
    frame = struct.pack(">hhih", API_KEYS["ApiVersions"], 99, 1, 3) + b"abc" + b"?"
    request = read_request(frame, 5.0)
    assert (request.api, request.version, request.client_id) == ("ApiVersions", 99, "abc")


# ---- the facts -------------------------------------------------------------------------------------------------------

TRIAL = Trial(family=Family.JAVA, act=Act.FREEZE, is_static=True)


def heartbeat(at_ms: float, member_id: str, error: int = 0) -> SeenRequest:
    return SeenRequest(at_ms=at_ms, api="Heartbeat", version=4, client_id="c", body={"member_id": member_id},
                       answered_ms=at_ms + 1, answer={"error_code": error})  # fmt: skip


def join(at_ms: float, member_id: str) -> SeenRequest:
    return msgspec.structs.replace(heartbeat(at_ms, member_id), api="JoinGroup")


def seen(number: int, *requests: SeenRequest, ended_ms: float | None = None) -> SeenConnection:
    ended = None if ended_ms is None else Ended.FIN
    opened_ms = requests[0].at_ms - 1
    return SeenConnection(number=number, opened_ms=opened_ms, requests=list(requests), ended=ended, ended_ms=ended_ms)


def watched(*connections: SeenConnection, undone_ms: float | None = 2_000) -> Watched:
    return Watched(
        trial=TRIAL, connections=list(connections), act_ms=1_000, undone_ms=undone_ms, until_ms=3_000, exited_ms=None
    )


def test_a_return_on_another_connection_is_distinguished_from_the_old_ones_end() -> None:
    """Java does this after SIGCONT: the old one ends then, and the old member id is used on the new one."""
    old = seen(0, join(0, ""), heartbeat(900, "m-1"), ended_ms=2_000)
    new = seen(1, heartbeat(2_010, "m-1", error=25), join(2_020, ""), heartbeat(2_100, "m-2"))
    fact = fact_of(watched(old, new), "1.0")
    assert fact.end is not None
    assert (fact.end.how, fact.end.after_ms, fact.last_beat_ms) == (Ended.FIN, 1_000, -100)
    back = fact.returned
    assert back is not None
    assert (back.joined, back.refusals, back.has_old_id, back.join_on_own, back.beats_on_own) == (
        True, (25,), False, False, False
    )  # fmt: skip


def test_a_return_on_the_same_connection() -> None:
    """After a late poll, for example."""
    own = seen(0, join(0, ""), heartbeat(900, "m-1"), join(2_020, ""), heartbeat(2_100, "m-2"))
    back = fact_of(watched(own), "1.0").returned
    assert back is not None
    assert (back.joined, back.refusals, back.join_on_own, back.beats_on_own) == (True, (), True, True)


def test_continued_heartbeats_are_not_a_return() -> None:
    """For example of a client without max.poll.interval.ms."""
    own = seen(0, join(0, ""), heartbeat(900, "m-1"), heartbeat(2_100, "m-1"))
    back = fact_of(watched(own), "1.0").returned
    assert back is not None
    assert not back.joined
    assert back.has_old_id


# ---- the page --------------------------------------------------------------------------------------------------------


def test_the_page_has_the_tables_of_the_last_run() -> None:
    """`python -m tests.clients.endings --write` writes both."""
    text = PAGE.read_text(encoding="utf-8")
    assert text == written(text, read_facts())


def test_the_last_run_is_whole() -> None:
    """Each family had each act, static and dynamic."""
    done = {(each.family, each.act, each.is_static) for each in read_facts() if each.way is Way.DIRECT}
    acts = set(Act) - {Act.PROXY_KILL}
    wanted = {(family, act, static) for act in acts for family in act.families for static in (False, True)}
    assert wanted - done == set()


def test_facts_of_another_run_replace_the_former_ones(tmp_path: Path) -> None:
    """Others stay."""
    first = fact_of(watched(seen(0, heartbeat(900, "m-1"))), "1.0")
    other = msgspec.structs.replace(first, is_static=False)
    newer = msgspec.structs.replace(first, version="2.0")
    path = tmp_path / "recorded.json"
    write_facts([first, other], path)
    write_facts([newer], path)
    assert {each.version for each in read_facts(path)} == {"1.0", "2.0"}
    assert len(read_facts(path)) == 2


def test_a_program_takes_its_settings_as_arguments() -> None:
    """Each as `name=value`."""
    given = ["bootstrap=h:1", "group_id=g", "client_id=c", "instance_id=", "handles_sigterm=true"]
    settings = settings_of(given)
    assert settings.handles_sigterm
    assert settings_of(settings.arguments()) == settings


# ---- a real client ---------------------------------------------------------------------------------------------------


def test_a_closed_client_leaves_if_it_is_dynamic_and_only_hangs_up_if_it_is_static(tmp_path: Path) -> None:
    """The page says so for each family; tested here for librdkafka."""
    found: dict[bool, Fact] = {}
    with place(Way.DIRECT, tmp_path) as at:
        for is_static in (False, True):
            trial = Trial(family=Family.LIBRDKAFKA, act=Act.CLOSE, is_static=is_static)
            found[is_static] = fact_of(watch(trial, at, tmp_path), "")
    assert [found[is_static].left is not None for is_static in (False, True)] == [True, False]
    assert all(each.end is not None for each in found.values())


def test_lines_reach_the_program_of_a_client_that_has_ended(tmp_path: Path) -> None:
    """An error with its output."""
    with client_process(["sh", "-c", "echo its last words"], tmp_path / "output") as process:
        until_so(lambda: not process.runs)
        with pytest.raises(ClientEnded, match="its last words"):
            process.tell("close")


def test_the_recorder_ends_all_connections_with_its_block() -> None:
    """Including connections of clients that do not close theirs."""
    with recorded() as (_, client, behind):
        held = client.dup(), behind.dup()
    for each in held:
        with each:
            each.settimeout(WITHIN_S)
            assert each.recv(1) == b""
