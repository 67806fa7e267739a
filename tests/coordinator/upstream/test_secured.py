"""A cluster with authentication and authorization: Muster's own principal, its rights, and certificates."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from muster.coordinator.upstream.errors import UpstreamRefused
from muster.coordinator.upstream.security import UpstreamSecurity
from muster.coordinator.upstream.shadows import Shadows
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.events.ids import GroupId
from muster.events.kafka.security import BadSecurity
from tests.brokers.acls import Acl, add_acls, remove_acls
from tests.brokers.certificates import Authority
from tests.brokers.fixtures import OPT_OUT_VARIABLE, OPTED_OUT
from tests.brokers.secured import SecuredBroker, secured_broker
from tests.coordinator.upstream.stage import NAME, new_group, unexpected
from tests.waiting import until


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredBroker]:
    """A broker with users, certificates and an authorizer."""
    if os.environ.get(OPT_OUT_VARIABLE) == "1":
        pytest.skip(OPTED_OUT)
    with secured_broker() as broker:
        yield broker


def security_of(broker: SecuredBroker, listener: str, **changed: str) -> UpstreamSecurity:
    """Credentials of the user `muster`."""
    properties = broker.client(listener, user="muster", mechanism="SCRAM-SHA-512") | changed
    del properties["bootstrap.servers"]
    return UpstreamSecurity.of(properties)


@asynccontextmanager
async def muster(broker: SecuredBroker, lost: list[tuple[GroupId, str]]) -> AsyncIterator[Shadows]:
    """One of our processes, as the user `muster`."""
    link = UpstreamLink(broker.address("SASL_SSL"), security_of(broker, "SASL_SSL"), give_up=unexpected)
    await link.open()
    shadows = Shadows(
        link, NAME, lost=lambda *reported: lost.append(reported), give_up=unexpected, heartbeat_interval_ms=100
    )
    try:
        yield shadows
    finally:
        await shadows.close()
        await link.close()


def test_without_properties_nothing_is_encrypted() -> None:
    """Neither our own requests nor relayed ones."""
    assert UpstreamSecurity().relay_context() is None
    assert UpstreamSecurity().kafka_security().security_protocol == "PLAINTEXT"
    assert UpstreamSecurity.of({"security.protocol": "SSL"}).relay_context() is not None


def test_without_a_certificate_principal_clients_are_relayed_with_ours(tmp_path: Path) -> None:
    """With SASL_SSL; with SSL they would have our rights."""
    issued = Authority(tmp_path).issue("muster")
    ours = {"ssl.certificate.location": str(issued.certificate), "ssl.key.location": str(issued.key)}
    plain = {"sasl.mechanism": "PLAIN", "sasl.username": "muster", "sasl.password": "secret"}
    for protocol, is_relayed in (("SASL_SSL", True), ("SSL", False)):
        security = UpstreamSecurity.of(
            ours
            | (plain if is_relayed else {})
            | {"security.protocol": protocol, "ssl.ca.location": str(issued.certificate)}
        )
        assert security.own.presents_certificate
        assert security.relayed.presents_certificate is is_relayed


def test_unusable_options_are_reported(tmp_path: Path) -> None:
    """With the option's name, and what it cannot be used for."""
    with pytest.raises(BadSecurity, match=r"--upstream-config: unknown property 'ssl\.ca'; did you mean"):
        UpstreamSecurity.of({"ssl.ca": "x"}, where="--upstream-config")
    with pytest.raises(BadSecurity, match=r"ssl\.ca\.location"):
        UpstreamSecurity.of({"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "none.pem")})


@pytest.mark.broker
async def test_a_password_that_is_wrong(secured: SecuredBroker) -> None:
    """One line, and a retry makes no sense."""
    security = security_of(secured, "SASL_PLAINTEXT", **{"sasl.password": "guessed"})
    link = UpstreamLink(secured.address("SASL_PLAINTEXT"), security, give_up=unexpected)
    with pytest.raises(UpstreamRefused, match=r"refuses Muster: .*invalid credentials"):
        await link.open()
    await link.close()


@pytest.mark.broker
async def test_a_certificate_of_an_untrusted_authority(secured: SecuredBroker) -> None:
    """The system's authorities do not trust it."""
    properties = {"security.protocol": "SSL"}
    link = UpstreamLink(secured.address("SSL"), UpstreamSecurity.of(properties), give_up=unexpected)
    with pytest.raises(UpstreamRefused, match=r"the certificate of the broker at .*unable to get local issuer"):
        await link.open()
    await link.close()


@pytest.mark.broker
async def test_a_certificate_that_is_not_shown(secured: SecuredBroker) -> None:
    """A retry makes no sense."""
    security = security_of(secured, "MUTUAL")
    link = UpstreamLink(secured.address("MUTUAL"), security, give_up=unexpected)
    with pytest.raises(UpstreamRefused, match=r"TLS fails with the broker at .* certificate"):
        await link.open()
    await link.close()


@pytest.mark.broker
async def test_a_principal_without_rights(secured: SecuredBroker) -> None:
    """The group stays upstream, and the missing ACL is named."""
    async with muster(secured, []) as shadows:
        theirs = await shadows.take(new_group())
    assert theirs is not None
    assert "lacks the ACL Allow READ on this GROUP" in theirs.reason


@pytest.mark.broker
async def test_a_principal_that_may_look_but_not_join(secured: SecuredBroker) -> None:
    """That is known before it joins."""
    group_id = new_group()
    add_acls(secured.admin(), Acl("muster", "group", group_id, "DESCRIBE"))
    lost: list[tuple[GroupId, str]] = []
    async with muster(secured, lost) as shadows:
        assert "READ" in str(await shadows.take(group_id))
        assert not shadows.owns(group_id)
    assert lost == []


@pytest.mark.broker
async def test_read_on_the_group_is_all_it_needs_until_it_is_revoked(secured: SecuredBroker) -> None:
    """Then the group is lost, with that reason."""
    group_id = new_group()
    acl = Acl("muster", "group", group_id, "READ")
    add_acls(secured.admin(), acl)
    lost: list[tuple[GroupId, str]] = []
    async with muster(secured, lost) as shadows:
        assert await shadows.take(group_id) is None
        for generation_id in (1, 2):
            shadows.update_generation(group_id, generation_id=generation_id, is_wanted=True)
            await shadows.wait_bumped(group_id, generation_id)
        async with shadows.withdrawn(group_id):
            pass
        await shadows.wait_bumped(group_id, 2)
        await shadows.remove_stray_shadows(lambda _: True)
        remove_acls(secured.admin(), acl)
        await until(lambda: lost != [])
    assert lost[0][0] == group_id
    assert "GROUP_AUTHORIZATION_FAILED (30)" in lost[0][1]
