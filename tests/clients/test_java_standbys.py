"""Hot standbys with Java consumers, whose subscription has their generation and which can lead by KIP-814."""

from contextlib import ExitStack
from uuid import uuid4

import pytest

from muster.coordinator.group.outcomes import ListedMember, Standing
from muster.events.consumer_protocol import assigned_partitions
from tests.brokers.java_tools import JavaTool, RunningTool, running_tool
from tests.clients.conftest import TOPIC
from tests.clients.consumers import Confluent
from tests.clients.crew import Crew
from tests.clients.probe import described, until_stable
from tests.clients.test_java_reliance import COOPERATIVE, partitions
from tests.clients.test_planned_membership import ask
from tests.muster_process import MusterProcess
from tests.waiting import until_so

pytestmark = pytest.mark.clients

RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"


class JavaCrew(Crew):
    """Three static Java consumers: a and b are active, s is a standby."""

    def __init__(self, muster: MusterProcess, assignor: str, stack: ExitStack) -> None:
        super().__init__(muster, Confluent)  # whose consumers are not used
        self.group_id = f"java-{uuid4().hex[:8]}"
        self._assignor, self._stack = assignor, stack
        self.tools: dict[str, RunningTool] = {}

    def start(self, name: str) -> RunningTool:
        where = ("--bootstrap-server", self.bootstrap, "--topic", TOPIC, "--group-id", self.group_id)
        how = ("--group-instance-id", name, "--session-timeout", "30000", "--assignment-strategy", self._assignor)
        self.tools[name] = self._stack.enter_context(running_tool(JavaTool.VERIFIABLE_CONSUMER, *where, *how))
        return self.tools[name]

    def has_shared(self) -> bool:
        """Both are members, and the group has settled: cooperative members need two rebalances for that."""
        group = described(self.bootstrap, self.group_id)
        shares = [assigned_partitions(bytes(member["member_assignment"])) or () for member in group["members"]]
        return group["group_state"] == "Stable" and [len(share) for share in shares] == [3, 3]

    def listed(self) -> list[ListedMember]:
        return list(ask(self, lambda admin: admin.list_members(self.group_id)))


@pytest.mark.parametrize("leads", [False, True], ids=["a follower is lost", "the leader is lost"])
@pytest.mark.parametrize("assignor", [RANGE, COOPERATIVE], ids=["range", "cooperative"])
def test_a_java_standby_takes_over_without_disturbing_others(muster: MusterProcess, assignor: str, leads: bool) -> None:
    """Its rejoin has another subscription than its join, and needs no rebalance all the same."""
    with ExitStack() as stack:
        group = JavaCrew(muster, assignor, stack)
        for name in ("a", "b"):
            group.start(name)
        until_so(group.has_shared, lambda: described(muster.bootstrap, group.group_id))
        ask(group, lambda admin: admin.set_target_group_size(group.group_id, 2))
        standby = group.start("s")
        until_stable(muster.bootstrap, group.group_id, members=3)
        triggers = group.triggers
        (lost,) = [m for m in group.listed() if m.is_leader is leads and m.standing is Standing.ACTIVE]
        name = str(lost.group_instance_id)
        group.tools[name].kill()
        ask(group, lambda admin: admin.remove_members_from_group(group.group_id, [name]))
        taken = standby.wait_for(lambda line: bool(partitions(line, "partitions_assigned")))
        assert len(partitions(taken, "partitions_assigned")) == 3
        assert group.triggers == triggers
        (now,) = [member for member in group.listed() if member.group_instance_id == "s"]
        assert (now.standing, now.is_leader) == (Standing.ACTIVE, leads)
