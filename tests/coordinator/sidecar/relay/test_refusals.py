"""Which of the clients that a broker refuses get a log line."""

import structlog

from muster.coordinator.log_throttle import LINE_INTERVAL_MS, NAMES_MAX, SILENT_FOR_MS
from muster.coordinator.sidecar.relay.refusals import NAME_CHARACTERS_MAX, Refusal, RefusalLog

PEER = "/10.0.0.7"


class Written:
    """The lines of a log whose clock the test moves."""

    def __init__(self) -> None:
        self.now_ms = 5_000
        self._log = RefusalLog(lambda: self.now_ms)

    def refused(self, *users: str | None, peer: str = PEER, client_id: str = "shop") -> list[tuple[str | None, int]]:
        """The user and the number of others of each line."""
        with structlog.testing.capture_logs() as lines:
            for user in users:
                self._log.write(Refusal.CREDENTIALS, peer, user=user, client_id=client_id, reason="refused")
        return [(line["user"], line["others_since"]) for line in lines]


def test_each_user_of_an_address_has_a_line_a_minute() -> None:
    log = Written()
    assert log.refused("alice", "bob", "alice", "alice") == [("alice", 0), ("bob", 0)]
    assert log.refused("alice", peer="/10.0.0.8") == [("alice", 0)]
    log.now_ms += LINE_INTERVAL_MS
    assert log.refused("bob", "alice") == [("bob", 0), ("alice", 2)]


def test_clients_without_a_user_are_distinguished_by_client_id() -> None:
    log = Written()
    assert log.refused(None, None) == [(None, 0)]
    assert log.refused(None, client_id="pay") == [(None, 0)]


def test_made_up_names_neither_flood_the_log_nor_push_out_another() -> None:
    """They share one line a minute; previously known users keep a line, and silent names lose their places."""
    log = Written()
    log.refused("alice")
    invented = [f"user-{number}" for number in range(1_000)]
    assert len(log.refused(*invented)) == NAMES_MAX
    assert log.refused("alice", *invented, "alice") == []
    log.now_ms += LINE_INTERVAL_MS
    assert log.refused("alice") == [("alice", 2)]
    assert log.refused("bob") == [("bob", 2 * (len(invented) - NAMES_MAX + 1) - 1)]
    log.now_ms += SILENT_FOR_MS
    assert log.refused("carol", "dave") == [("carol", 0), ("dave", 0)]


def test_a_name_of_any_length_is_cut() -> None:
    log = Written()
    long = "x" * 500_000
    assert log.refused(long) == [(long[:NAME_CHARACTERS_MAX], 0)]
