"""Whether `--upstream` names a Kafka cluster, or by mistake a Muster: a sidecar, or one that stands alone.

A Muster describes a config of its own for every group; a Kafka broker has none of that name.
"""

from typing import Final

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
from kio.static.primitive import i8

from muster.coordinator.group.configs import COORDINATOR
from muster.coordinator.upstream.link import UpstreamLink, UpstreamRefused
from muster.events.kafka.exchange import Exchange

_GROUP: Final = i8(32)
_ANY_GROUP: Final = "muster"


async def refuse_muster(link: UpstreamLink) -> None:
    """Raise UpstreamRefused if a Muster answers, and TryAgain if nobody does.

    Brokers before Kafka 4.0, and those at which our principal may not describe configs of groups, answer an error, and
    pass: so would a sidecar in front of them.
    """
    resource = DescribeConfigsResource(
        resource_type=_GROUP, resource_name=_ANY_GROUP, configuration_keys=(COORDINATOR,)
    )
    answer = await link.ask_any(Exchange(DescribeConfigsRequest(resources=(resource,)), DescribeConfigsResponse))
    if any(config.name == COORDINATOR for result in answer.results for config in result.configs):
        raise UpstreamRefused("a Muster answers there, not a broker; name the brokers of the Kafka cluster")
