"""Background tasks of a layer in front of the groups."""

import asyncio

from muster.coordinator.sidecar.groups.groups_layer import GroupsLayer
from tests.coordinator.scripted import ScriptedGroups
from tests.coordinator.upstream.stage import unexpected


async def test_a_layer_is_closed_when_its_tasks_have_ended() -> None:
    """What they do at their ends needs what is closed after the layer, as the link to the brokers."""
    layer = GroupsLayer(ScriptedGroups(lambda _command: None), give_up=unexpected)
    began, done = asyncio.Event(), list[str]()

    async def steps() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            done.append("put in order")

    task = layer._go_on(steps(), "steps")
    await began.wait()
    await layer.close()
    assert (done, task.cancelled()) == (["put in order"], True)
