"""Background tasks that end with their owner."""

import asyncio

from muster.coordinator.tasks import BackgroundTasks
from tests.coordinator.upstream.stage import unexpected


async def test_they_are_closed_when_they_have_ended() -> None:
    """Their ends may need what is closed next, such as the link to the brokers."""
    tasks, began, done = BackgroundTasks(unexpected), asyncio.Event(), list[str]()

    async def steps() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            done.append("put in order")

    task = tasks.start(steps(), "steps")
    await began.wait()
    await tasks.close()
    assert (done, task.cancelled()) == (["put in order"], True)
