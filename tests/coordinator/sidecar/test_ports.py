"""The port of a broker's listener, by its node id."""

import pytest

from muster.coordinator.settings.broker_ports import BrokerPorts, NoPort


def test_a_port_follows_from_the_node_id() -> None:
    """It depends neither on other brokers, nor on when its broker was discovered (known bugs P11, P15)."""
    ports = BrokerPorts(base=9093)
    assert [ports.port_of(node_id) for node_id in (0, 3, 1000)] == [9093, 9096, 10_093]


def test_the_mapping_comes_first() -> None:
    """For ids beyond the range, and for ports chosen by the user."""
    ports = BrokerPorts(base=9093, mapping={1: 19_000, 2_147_483_647: 19_001})
    assert [ports.port_of(node_id) for node_id in (0, 1, 2_147_483_647)] == [9093, 19_000, 19_001]


def test_an_id_beyond_the_range_is_named_with_the_range_and_the_way_out() -> None:
    """Known bug P10; the last one of the range has its port."""
    ports = BrokerPorts(base=9093)
    assert ports.port_of(56_442) == 65_535
    with pytest.raises(NoPort) as none:
        ports.port_of(56_443)
    assert str(none.value) == (
        "there is no port for node id 56443: from --broker-base-port 9093 on there are ports for node ids 0 to 56442;"
        " choose a lower one, or give this one its own: --listener-map 56443=PORT"
    )


def test_the_source_of_the_ports_is_named() -> None:
    """The variable, or that they are defaults."""
    named = BrokerPorts(base=9093, base_name="MUSTER_BROKER_BASE_PORT", mapping={1: 9094}, mapping_name="m.toml: map")
    with pytest.raises(NoPort, match="from MUSTER_BROKER_BASE_PORT 9093 on there are ports"):
        named.port_of(60_000)
    with pytest.raises(NoPort, match=r"9094, which m\.toml: map gives to node id 1"):
        BrokerPorts(base=9092, mapping={1: 9094}, mapping_name="m.toml: map").port_of(2)


@pytest.mark.parametrize(
    ("ports", "said"),
    [
        (BrokerPorts(base=9092, taken={9093: "--metrics"}), "would be at port 9093, which --metrics has"),
        (BrokerPorts(base=9092, mapping={7: 9093}), "would be at port 9093, which --listener-map gives to node id 7"),
    ],
)
def test_a_port_in_use_is_named(ports: BrokerPorts, said: str) -> None:
    """With its user; the other brokers have theirs."""
    with pytest.raises(
        NoPort, match=r"node id 1 .*choose another --broker-base-port, or --listener-map 1=PORT"
    ) as none:
        ports.port_of(1)
    assert said in str(none.value)
    assert ports.port_of(2) == 9094
