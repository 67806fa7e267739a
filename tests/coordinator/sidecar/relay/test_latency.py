"""The latency of the relay: which response the broker's next bytes start."""

from collections.abc import Callable

from muster.coordinator.sidecar.messages.request_plan import Rewrite
from muster.coordinator.sidecar.relay.answers import Answers, Expected
from muster.coordinator.upstream.coordinators import Heard
from muster.events.steps import Steps
from tests.coordinator.sidecar.relay.talk import new_conversation


def answers_to(*api_keys: int, rewrite: Rewrite | None = None, own: Callable[[bytes], None] | None = None) -> Answers:
    """Expect responses to requests of these APIs, sent at 1, 2 and so on."""
    answers = new_conversation().answers
    assert isinstance(answers._heard, Heard)
    for number, api_key in enumerate(api_keys, 1):
        answers.expect(Expected(_id(number), number, rewrite=rewrite, own=own, api_key=api_key))
    return answers


def _id(number: int) -> bytes:
    return number.to_bytes(4, "big")


def answer(number: int, content: bytes = b"content") -> bytes:
    return (4 + len(content)).to_bytes(4, "big") + _id(number) + content


def begun(answers: Answers) -> tuple[int, int] | None:
    """The API and send time of the request whose response starts next."""
    expected = answers.begins_next
    return None if expected is None else (expected.api_key, expected.sent_ms)


def test_the_next_answer_is_that_to_the_oldest_request() -> None:
    answers = answers_to(0, 1)
    assert begun(answers) == (0, 1)
    answers.receive(answer(1))
    assert begun(answers) == (1, 2)
    answers.receive(answer(2))
    assert begun(answers) is None


def test_bytes_in_the_middle_of_an_answer_begin_none() -> None:
    """The response may be streamed, or buffered until complete, like a response to us."""
    relayed = answers_to(0, 1)
    relayed.receive(answer(1)[:10])
    assert begun(relayed) is None
    relayed.receive(answer(1)[10:])
    assert begun(relayed) == (1, 2)
    given: list[bytes] = []
    ours = answers_to(0, 1, own=given.append)
    ours.receive(answer(1)[:10])
    assert begun(ours) is None
    ours.receive(answer(1)[10:])
    assert (given, begun(ours)) == ([b"content"], (1, 2))


def test_an_answer_that_is_being_rewritten_holds_up_the_next() -> None:
    """It has started, and is not complete."""

    def rewrite(payload: bytes) -> Steps[bytes]:
        yield 1_000_000
        return payload

    answers = answers_to(3, 1, rewrite=rewrite)
    answers.receive(answer(1))
    assert begun(answers) is None
    steps = answers.take_rewriting()
    assert steps is not None
    for _ in steps:
        pass
    answers.receive(b"")
    assert begun(answers) == (1, 2)
