"""The service under test: the interface that a drill needs, and its implementation for a running service."""

from typing import Final, Protocol

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v7.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v7.response import MetadataResponse
from kio.schema.types import TopicName

from muster.drills.checking import DrilledLog, groups_there
from muster.drills.load.load import explained, group_ids
from muster.drills.names import PREFIX, Names
from muster.drills.plan import CLIENT_CONFIG, Load, Unusable
from muster.events.kafka.addresses import read_servers
from muster.events.kafka.connections import Connections
from muster.events.kafka.errors import LinkError
from muster.events.kafka.exchange import Exchange
from muster.events.kafka.first_answer import first_answer
from muster.events.kafka.security import KafkaSecurity
from muster.events.partitioner import partition_for
from muster.replay.text.grammar import plural


class Service(Protocol):
    """The service under test, as the drill sees it.

    `log_url`: its event log; `topic`: the topic that members subscribe to.
    """

    @property
    def bootstrap(self) -> str:
        """The addresses for clients, HOST:PORT, comma-separated."""
        ...

    @property
    def topic(self) -> str: ...

    @property
    def log_url(self) -> str: ...

    @property
    def has_new_log(self) -> bool:
        """True if the log was created for the drill."""
        ...

    @property
    def client_security(self) -> KafkaSecurity: ...

    @property
    def log_security(self) -> KafkaSecurity: ...

    @property
    def description(self) -> str:
        """One line for the report: which processes, on which log."""
        ...

    def process_of(self, owner: str) -> str:
        """Return the drill's name for a process; `owner` is its name in events (`host:pid`)."""
        ...


TIMEOUT_MS: Final = 10_000
NAMED_MAX: Final = 8


class RunningService:
    """A running service that the drill did not start; a command of the operator restarts its processes."""

    def __init__(
        self, bootstrap: str, *, topic: str, log_url: str, client_security: KafkaSecurity, log_security: KafkaSecurity
    ) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.log_url = log_url
        self.has_new_log = False
        self.client_security = client_security
        self.log_security = log_security

    @property
    def description(self) -> str:
        return f"the service at {self.bootstrap}, whose log is {self.log_url}"

    def process_of(self, owner: str) -> str:
        return owner

    async def check(self, members: int) -> None:
        """Raise Unusable if the topic does not exist, or has fewer partitions than a group has members."""
        request = MetadataRequest(
            topics=(MetadataRequestTopic(name=TopicName(self.topic)),), allow_auto_topic_creation=False
        )
        connections = Connections(self.client_security, connect_timeout_ms=TIMEOUT_MS, explain=explained)
        try:
            asked = await first_answer(
                read_servers(self.bootstrap),
                lambda address: connections.ask(
                    address, Exchange(request, MetadataResponse), lane=0, timeout_ms=TIMEOUT_MS
                ),
                (LinkError,),
            )
        finally:
            await connections.close()
        if asked.answer is None:
            raise Unusable(
                f"nobody answers at --bootstrap {self.bootstrap}: {asked.reasons}; where it wants TLS or credentials of"
                f" its clients, give {CLIENT_CONFIG}"
            )
        (topic,) = asked.answer[1].topics
        if topic.error_code is not ErrorCode.none:
            raise Unusable(
                f"--topic {self.topic}: {topic.error_code.name.upper()} at {self.bootstrap}; name a topic that is"
                " there: members of the drill's groups subscribe it and commit, and read nothing"
            )
        if len(topic.partitions) < members:
            raise Unusable(
                f"--topic {self.topic} has {plural(len(topic.partitions), 'partition')}, and --members {members} need"
                " one each: name another topic, or give fewer members"
            )

    async def neighbours(self, names: Names, load: Load) -> str:
        """Describe in a sentence which other groups share partitions of the event log with the drill's groups."""
        async with DrilledLog(self.log_url, names, self.log_security) as log:
            partitions = log.partitions
        ours = {partition_for(group_id, partitions) for group_id, _ in group_ids(load, names)}
        others = [each for each in await groups_there(self.bootstrap, self.client_security) if not names.is_ours(each)]
        shared = sorted(each for each in others if partition_for(each, partitions) in ours)
        where = f"{plural(len(ours), 'partition')} of {partitions} that the drill's groups are on"
        if not shared:
            return f"No other group is on the {where}."
        named = ", ".join(shared[:NAMED_MAX]) + (
            f" and {len(shared) - NAMED_MAX} more" if len(shared) > NAMED_MAX else ""
        )
        drills = sum(each.startswith(PREFIX) for each in shared)
        of_drills = f", of which {drills} of other drills" if drills else ""
        who = f"{plural(len(shared), 'other group')}{of_drills}"
        return f"{who} share the {where}, and take part in the hand-over: {named}."
