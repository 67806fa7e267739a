"""Access control lists of a broker with an authorizer: adding and removing entries.

An entry is one line; the functions wait until the broker applies it.

    add_acls(admin, Acl("alice", "group", "orders", "READ"), Acl("alice", "topic", "ord", "READ", is_prefix=True))
"""

import time
from typing import Final

import msgspec
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its public names, exported without saying so
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

Parts = tuple[ResourceType, str, ResourcePatternType, str, str, AclOperation, AclPermissionType]

ANSWERS_WITHIN_S: Final = 30
CHECK_INTERVAL_S: Final = 0.02
CLUSTER_NAME: Final = "kafka-cluster"


class Acl(msgspec.Struct, frozen=True):
    """An operation that a user may, or must not, perform."""

    user: str
    resource: str
    """`topic`, `group`, `broker` (Kafka's cluster; its name is `kafka-cluster`), `transactional_id`."""
    name: str
    operation: str
    """As Kafka names it: `READ`, `WRITE`, `DESCRIBE`, `DELETE`, `ALTER_CONFIGS`, `CLUSTER_ACTION`, `ALL`..."""
    is_prefix: bool = False
    is_denied: bool = False

    def binding(self) -> AclBinding:
        """In the client's form."""
        return AclBinding(*self._parts())

    def filter(self) -> AclBindingFilter:
        """A filter that only matches this entry."""
        return AclBindingFilter(*self._parts())

    def _parts(self) -> Parts:
        return (
            ResourceType[self.resource.upper()],
            self.name,
            ResourcePatternType.PREFIXED if self.is_prefix else ResourcePatternType.LITERAL,
            f"User:{self.user}",
            "*",
            AclOperation[self.operation],
            AclPermissionType.DENY if self.is_denied else AclPermissionType.ALLOW,
        )


def add_acls(admin: AdminClient, *acls: Acl) -> None:
    """Add them, and wait until the broker that `admin` is connected to applies them. `admin` is a superuser's."""
    for added in admin.create_acls([acl.binding() for acl in acls], request_timeout=ANSWERS_WITHIN_S).values():
        added.result(ANSWERS_WITHIN_S)
    for acl in acls:
        _wait_until(admin, acl, is_there=True)


def remove_acls(admin: AdminClient, *acls: Acl) -> None:
    """Remove them, and wait until the broker that `admin` is connected to no longer applies them."""
    for removed in admin.delete_acls([acl.filter() for acl in acls], request_timeout=ANSWERS_WITHIN_S).values():
        assert removed.result(ANSWERS_WITHIN_S), "there was no such entry"
    for acl in acls:
        _wait_until(admin, acl, is_there=False)


def _wait_until(admin: AdminClient, acl: Acl, *, is_there: bool) -> None:
    # The controller has answered; the broker's own authorizer, which answers this, follows shortly after.
    deadline = time.monotonic() + ANSWERS_WITHIN_S
    while bool(admin.describe_acls(acl.filter()).result(ANSWERS_WITHIN_S)) != is_there:
        assert time.monotonic() < deadline, f"the broker does not obey: {acl}"
        time.sleep(CHECK_INTERVAL_S)
