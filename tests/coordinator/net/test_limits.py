"""The limits of connections are consistent with each other."""

from muster.coordinator.net import client_socket, flow, listener, listening, memory


def test_connections_are_closed_for_memory_until_a_part_of_it_is_free() -> None:
    """If they were closed only down to the limit, the next request would close another one."""
    assert 0.5 <= memory.ROOM_AGAIN < 1


def test_a_turn_ends_after_as_many_bytes_as_are_sent_in_a_few_writes() -> None:
    assert flow.JOINED_BYTES_MAX < client_socket.ANSWERED_BYTES_MAX <= 1024**2


def test_as_many_clients_wait_to_be_accepted_as_several_turns_of_the_loop_accept() -> None:
    """Thousands may connect at once, when a process starts."""
    assert 4 * listener.ACCEPTED_AT_ONCE <= listening.BACKLOG <= 65_535
    assert 0 < listener.RETRY_ACCEPT_S <= 1
