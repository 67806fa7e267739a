"""Requests that any of several brokers can answer: a silent one does not keep the next from being tried."""

import asyncio

from muster.events.kafka.first_answer import HEDGE_DELAY_S, Round, first_answer
from tests.faults.process import seconds, story

NEVER = 3_600.0


async def answered(**delays: float) -> tuple[Round[str, str, ValueError], float]:
    """Query these brokers in turn; return the result, and after how many seconds. A negative delay fails at once."""
    began = seconds()

    async def ask(broker: str) -> str:
        if delays[broker] < 0:
            raise ValueError(f"{broker} failed")
        await asyncio.sleep(delays[broker])
        return f"of {broker}"

    return await first_answer(delays, ask, (ValueError,)), seconds() - began


@story
async def test_the_next_server_is_tried_after_a_delay() -> None:
    """Two are silent; the third responds at once, and the two are reported."""
    result, took_s = await answered(a=NEVER, b=NEVER, c=0)
    assert result == Round(("c", "of c"), [], ["a", "b"])
    assert took_s == 2 * HEDGE_DELAY_S


@story
async def test_the_next_server_is_tried_at_once_after_a_failure() -> None:
    result, took_s = await answered(a=-1, b=0)
    assert (result.answer, result.reasons, took_s) == (("b", "of b"), "a failed", 0)


@story
async def test_the_last_may_take_its_time() -> None:
    """Since no other broker is left to ask."""
    result, took_s = await answered(a=NEVER, b=20)
    assert (result.answer, took_s) == (("b", "of b"), HEDGE_DELAY_S + 20)


@story
async def test_there_is_no_response_when_all_have_failed() -> None:
    result, _ = await answered(a=-1, b=-1)
    assert (result.answer, result.reasons, result.silent) == (None, "a failed; b failed", [])
    assert result.all_failed_as(ValueError)
