"""HOST:PORT is read in one place."""

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


@pytest.mark.parametrize("text", ["kafka", ":9092", "kafka:", "kafka:x", "kafka:0", "kafka:70000", "a:1,,b:2", "k:²"])
def test_what_is_no_address_is_named(text: str) -> None:
    """With an example of one."""
    with pytest.raises(ValueError, match="should be HOST:PORT, for example kafka:9092"):
        read_servers(text)


def test_one_may_listen_at_port_0_but_not_connect_to_it() -> None:
    assert read_address("kafka:0") == BrokerAddress("kafka", 0)
