"""Turns the options of a command into a drill: checks their combination, makes the plan, and chooses the fault."""

import os
from typing import Final, NoReturn

from muster.coordinator.client.commands.answer import AnswerFormat
from muster.drills.command import UNUSABLE, Asked, run_local, run_on_service
from muster.drills.faults import LocalFault, cut, fence, restart, slow_down, take_over
from muster.drills.plan import CLIENT_CONFIG, CLIENT_CONFIG_VARIABLES, Between, Fault, Given, Limits, Load, Mode, Plan
from muster.drills.service.local import Proxied, Setup
from muster.drills.service.running import RunningService
from muster.events.kafka.addresses import read_servers
from muster.events.kafka.security import KAFKA_CONFIG, BadSecurity, KafkaSecurity, security_given
from muster.replay.commands.opening import fail
from muster.replay.commands.speaking import speaking_as

HEARTBEATS_WITHIN_MS: Final = 3_000
OTHERS_WITHIN_MS: Final = 5_000
LOCAL_FAULTS: Final[dict[Fault, LocalFault]] = {
    Fault.TAKEOVER: take_over,
    Fault.RESTART: restart,
    Fault.FENCE: fence,
    Fault.PARTITION: cut,
    Fault.SLOW_BROKER: slow_down,
}
_TLS: Final = ("SSL", "SASL_SSL")


def start(fault: Fault, given: Given, *, is_for_service: bool) -> None:
    """Run the drill that the options describe, or end the command with a one-line error."""
    with speaking_as(f"muster drill {fault}"):
        plan = plan_of(fault, given)
        asked = Asked(out=given.out, is_json=given.form is AnswerFormat.JSON)
        if given.local:
            run_local(plan, _setup(fault, given), LOCAL_FAULTS[fault], asked)
        elif given.bootstrap is not None:
            service, command = _service(given)
            run_on_service(plan, service, command, asked, yes=given.yes)
        else:
            or_service = "; --bootstrap HOST:PORT drills a running service" if is_for_service else ""
            _refuse(f"say where: --local --kafka HOST:PORT starts processes of the drill's own{or_service}")


def plan_of(fault: Fault, given: Given) -> Plan:
    """Return the plan. Its goals allow for the time in which no response can be expected.

    That is the time until the network is healed, or until other processes have taken over.
    """
    allowed_ms = 0
    if fault is Fault.PARTITION:
        takes_over = given.between is Between.LOG and given.mode is Mode.STANDALONE  # a sidecar loses all brokers
        allowed_ms = min(given.lasts, given.owner_session) if takes_over else given.lasts
    elif fault is Fault.SLOW_BROKER:
        allowed_ms = given.delay
    return Plan(
        fault=fault,
        load=Load(
            groups=given.groups,
            members=given.members,
            heartbeat_interval_ms=given.interval,
            commit_interval_ms=given.interval,
            session_timeout_ms=given.session_timeout,
        ),
        limits=Limits(
            heartbeats_ms=_limit(given.heartbeats_within, HEARTBEATS_WITHIN_MS + allowed_ms),
            joins_ms=_limit(given.joins_within, OTHERS_WITHIN_MS + allowed_ms),
            commits_ms=_limit(given.commits_within, OTHERS_WITHIN_MS + allowed_ms),
        ),
        before_ms=given.before,
        after_ms=given.after,
        within_ms=given.within,
        fault_ms=given.lasts,
        delay_ms=given.delay,
        between=given.between,
    )


def _limit(given_ms: int | None, default_ms: int) -> int:
    return default_ms if given_ms is None else given_ms


def _setup(fault: Fault, given: Given) -> Setup:
    if given.bootstrap is not None:
        _refuse("--local and --bootstrap exclude each other: processes of the drill's own, or a running service")
    for option, value in (("--by", given.by), ("--topic", given.topic), (CLIENT_CONFIG, given.client_config)):
        if value is not None:
            _refuse(f"{option} is for a running service (--bootstrap), and --local was given")
    if given.kafka is None:
        _refuse("--local needs --kafka HOST:PORT: the cluster that gets the drill's event log")
    _check_servers("--kafka", given.kafka)
    security, proxied = _security(given), _proxied(fault, given)
    if proxied is Proxied.LOG and security.security_protocol in _TLS:
        _refuse(
            f"{fault} reads what passes between a process and its brokers, and cannot with TLS"
            f" ({KAFKA_CONFIG} security.protocol={security.security_protocol}): name a listener without it"
        )
    if given.mode is Mode.SIDECAR and proxied is Proxied.CLIENTS:
        _refuse(
            "--between clients is for --mode standalone: members reach a sidecar at an address for each broker, and the"
            " drill's proxy would be before one of them alone"
        )
    if given.mode is Mode.SIDECAR and security.security_protocol in _TLS:
        _refuse(
            f"--mode sidecar is for a cluster without TLS: the members of a drill do not reach {given.kafka} through a"
            " sidecar otherwise"
        )
    return Setup(
        kafka=given.kafka,
        security=security,
        kafka_config=tuple(given.kafka_config or ()),
        mode=given.mode,
        processes=given.processes,
        partitions=given.partitions,
        topic_partitions=given.members,
        owner_session_timeout_ms=given.owner_session,
        proxied=proxied,
    )


def _proxied(fault: Fault, given: Given) -> Proxied:
    if fault is Fault.SLOW_BROKER or (fault is Fault.PARTITION and given.between is Between.LOG):
        return Proxied.LOG
    return Proxied.CLIENTS if fault is Fault.PARTITION else Proxied.NOTHING


def _service(given: Given) -> tuple[RunningService, str]:
    assert given.bootstrap is not None
    _check_servers("--bootstrap", given.bootstrap)
    if given.kafka is not None:
        _refuse("--kafka is for --local; the log of a running service is --log URL")
    if given.by is None:
        _refuse(
            "--bootstrap needs --by COMMAND, which stops or restarts a process in good order, such as"
            " 'systemctl restart muster@1': no process can be asked from outside to hand its partitions over. Kills,"
            " and the other faults, need --local"
        )
    if given.log is None:
        _refuse("--bootstrap needs --log URL, the event log of the service: what was acknowledged is compared with it")
    if given.topic is None:
        _refuse("--bootstrap needs --topic NAME: a topic that is there, which the drill's members subscribe")
    service = RunningService(
        given.bootstrap,
        topic=given.topic,
        log_url=given.log,
        client_security=_client_security(given),
        log_security=_security(given),
    )
    return service, given.by


def _security(given: Given) -> KafkaSecurity:
    try:
        return security_given(given.kafka_config, os.environ)
    except BadSecurity as error:
        _refuse(str(error))


def _client_security(given: Given) -> KafkaSecurity:
    """Return the security settings with which the drill's members connect to a running service."""
    try:
        return security_given(given.client_config, os.environ, option=CLIENT_CONFIG, variables=CLIENT_CONFIG_VARIABLES)
    except BadSecurity as error:
        _refuse(str(error))


def _check_servers(option: str, servers: str) -> None:
    try:
        read_servers(servers)
    except ValueError as error:
        _refuse(f"{option} {error}")


def _refuse(message: str) -> NoReturn:
    fail(message, UNUSABLE)
