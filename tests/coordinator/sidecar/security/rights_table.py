"""The rights that each request handled by a sidecar needs, and the response to a client that lacks only one of them.

It has the table, and its form on the page; `rights_questions.py` has the requests.

A request needs all rows for its API and subject. What the broker knows too is answered like by the broker directly;
what only Muster knows has no response there, and what is Muster's own is refused to all clients.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

GROUP: Final = "GROUP_AUTHORIZATION_FAILED"
TOPIC: Final = "TOPIC_AUTHORIZATION_FAILED"
TRANSACTIONAL_ID: Final = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
CLUSTER: Final = "CLUSTER_AUTHORIZATION_FAILED"
NOT_LISTED: Final = "the group is not listed"

IDS: Final = "one of Muster's own transactional ids"
KAFKAS: Final = "Kafka's configs of a group"
MEMBERS: Final = "`members` and `members.move` of a group"
MUSTERS: Final = "Muster's other configs of a group"
MUSTERS_ALL: Final = "Muster's configs of a group"
OWN_TOPICS: Final = "one of Muster's own topics"


class Row(msgspec.Struct, frozen=True):
    """One right. `resource` and `operation` as Kafka names them; "" if no right suffices."""

    api: str
    about: str
    resource: str
    operation: str
    without: str
    """The name of the error, or NOT_LISTED."""
    only_here: bool = False
    """True if the broker does not know the subject."""

    def __str__(self) -> str:
        return "-".join(filter(None, (self.api, self.about, self.resource, self.operation)))

    def others(self) -> Iterator["Row"]:
        """Further rights that the same request needs."""
        return (row for row in ROWS if row.request == self.request and row != self)

    @property
    def request(self) -> tuple[str, str]:
        return self.api, self.about


ROWS: Final = (
    Row("FindCoordinator", "a group", "Group", "DESCRIBE", GROUP),
    Row("FindCoordinator", "a transactional id", "TransactionalId", "DESCRIBE", TRANSACTIONAL_ID),
    Row("JoinGroup", "", "Group", "READ", GROUP),
    Row("SyncGroup", "", "Group", "READ", GROUP),
    Row("Heartbeat", "", "Group", "READ", GROUP),
    Row("LeaveGroup", "", "Group", "READ", GROUP),
    Row("ConsumerGroupHeartbeat", "", "Group", "READ", GROUP),
    Row("ConsumerGroupHeartbeat", "", "Topic", "DESCRIBE", TOPIC),
    Row("OffsetCommit", "", "Group", "READ", GROUP),
    Row("OffsetCommit", "", "Topic", "READ", TOPIC),
    Row("OffsetFetch", "", "Group", "DESCRIBE", GROUP),
    Row("OffsetFetch", "", "Topic", "DESCRIBE", TOPIC),
    Row("OffsetDelete", "", "Group", "DELETE", GROUP),
    Row("OffsetDelete", "", "Topic", "READ", TOPIC),
    Row("DescribeGroups", "", "Group", "DESCRIBE", GROUP),
    Row("ListGroups", "", "Group", "DESCRIBE", NOT_LISTED),
    Row("DeleteGroups", "", "Group", "DELETE", GROUP),
    Row("DescribeConfigs", KAFKAS, "Group", "DESCRIBE_CONFIGS", GROUP),
    Row("DescribeConfigs", MUSTERS, "Group", "DESCRIBE_CONFIGS", GROUP, only_here=True),
    Row("DescribeConfigs", MEMBERS, "Group", "DESCRIBE_CONFIGS", GROUP, only_here=True),
    Row("DescribeConfigs", MEMBERS, "Group", "DESCRIBE", GROUP, only_here=True),
    Row("IncrementalAlterConfigs", KAFKAS, "Group", "ALTER_CONFIGS", GROUP),
    Row("IncrementalAlterConfigs", MUSTERS_ALL, "Group", "ALTER_CONFIGS", GROUP, only_here=True),
    Row("IncrementalAlterConfigs", MUSTERS_ALL, "Group", "READ", GROUP, only_here=True),
    Row("Produce", "", "Topic", "WRITE", TOPIC),
    Row("Produce", "in a transaction", "Topic", "WRITE", TOPIC),
    Row("Produce", "in a transaction", "TransactionalId", "WRITE", TRANSACTIONAL_ID),
    Row("Produce", OWN_TOPICS, "", "", "INVALID_TOPIC_EXCEPTION"),
    Row("InitProducerId", "without a transactional id", "Cluster", "IDEMPOTENT_WRITE", CLUSTER),
    Row("InitProducerId", "", "TransactionalId", "WRITE", TRANSACTIONAL_ID),
    Row("InitProducerId", IDS, "", "", TRANSACTIONAL_ID),
    Row("AddPartitionsToTxn", "", "TransactionalId", "WRITE", TRANSACTIONAL_ID),
    Row("AddPartitionsToTxn", "", "Topic", "WRITE", TOPIC),
    Row("AddPartitionsToTxn", IDS, "", "", TRANSACTIONAL_ID),
    Row("AddOffsetsToTxn", "", "TransactionalId", "WRITE", TRANSACTIONAL_ID),
    Row("AddOffsetsToTxn", "", "Group", "READ", GROUP),
    Row("AddOffsetsToTxn", IDS, "", "", TRANSACTIONAL_ID),
    Row("TxnOffsetCommit", "", "TransactionalId", "WRITE", TRANSACTIONAL_ID),
    Row("TxnOffsetCommit", "", "Group", "READ", GROUP),
    Row("TxnOffsetCommit", "", "Topic", "READ", TOPIC),
    Row("TxnOffsetCommit", IDS, "", "", TRANSACTIONAL_ID),
    Row("EndTxn", "", "TransactionalId", "WRITE", TRANSACTIONAL_ID),
    Row("EndTxn", IDS, "", "", TRANSACTIONAL_ID),
)
RIGHTS: Final = tuple(row for row in ROWS if row.resource)
RESERVED: Final = tuple(row for row in ROWS if not row.resource)


def as_markdown() -> str:
    """The table of the page."""
    head = ("| API | About | Resource | Operation | Without it |", "|---|---|---|---|---|")
    cells = ((each.api, each.about, each.resource or "none suffices", each.operation, each.without) for each in ROWS)
    return "\n".join((*head, *("| " + " | ".join(row) + " |" for row in cells)))
