"""HOST:PORT is read in one place."""

from collections.abc import Callable

import pytest

from muster.events.kafka.addresses import BrokerAddress, read_address, read_servers


def test_addresses_of_both_kinds() -> None:
    """As in Kafka's bootstrap.servers."""
    assert read_servers("kafka:9092, [::1]:9093") == (BrokerAddress("kafka", 9092), BrokerAddress("::1", 9093))
    assert str(BrokerAddress("::1", 9093)) == "[::1]:9093"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9092", ["127.0.0.1:9092"]),
        (" kafka:1 ,[::1]:9092", ["kafka:1", "[::1]:9092"]),
    ],
)
def test_addresses_are_read(text: str, expected: list[str]) -> None:
    assert list(map(str, read_servers(text))) == expected


@pytest.mark.parametrize("text", ["kafka", ":9092", "kafka:", "kafka:x", "kafka:0", "a:1,,b:2", "k:²"])
def test_invalid_addresses_are_named(text: str) -> None:
    """With an example of one."""
    with pytest.raises(ValueError, match="should be HOST:PORT, for example kafka:9092"):
        read_servers(text)


@pytest.mark.parametrize("text", ["kafka", ":9092", "kafka:", "kafka:x", "k:²", "kafka:-1", "kafka: 1"])
def test_a_valid_listen_address_is_requested_without_the_given_text(text: str) -> None:
    """The caller, which has read it, says where it was."""
    with pytest.raises(ValueError, match=r"^should be HOST:PORT, for example 127\.0\.0\.1:9092$"):
        read_address(text)


@pytest.mark.parametrize(("port", "is_one"), [(1, True), (65_535, True), (65_536, False)])
def test_ports_are_read_up_to_the_last(port: int, is_one: bool) -> None:
    if is_one:
        assert read_servers(f"kafka:{port}") == (read_address(f"kafka:{port}"),) == (BrokerAddress("kafka", port),)
    else:
        with pytest.raises(ValueError, match="a port of 65535 at most"):
            read_address(f"kafka:{port}")


@pytest.mark.parametrize("read", [read_address, read_servers])
def test_a_port_that_is_too_high_is_reported(read: Callable[[str], object]) -> None:
    """HOST:PORT it is."""
    with pytest.raises(ValueError, match="should be HOST:PORT with a port of 65535 at most"):
        read("kafka:70000")


def test_one_may_listen_at_port_0_but_not_connect_to_it() -> None:
    assert read_address("kafka:0") == BrokerAddress("kafka", 0)
