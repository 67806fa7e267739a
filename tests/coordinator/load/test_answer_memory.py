"""Memory for responses being written: over the limit one at a time continues."""

from muster.coordinator.load.answer_memory import AnswerMemory, answer_memory_of

A, B = object(), object()


def may_grow(answer_memory: AnswerMemory, *answers: object) -> list[bool]:
    return [answer_memory.may_grow(answer) for answer in answers]


def test_beyond_the_limit_the_first_waiter_continues_until_it_releases_memory() -> None:
    answer_memory = AnswerMemory(10)
    answer_memory.take(10)
    assert may_grow(answer_memory, A, B) == [True, True]
    answer_memory.take(1)
    assert may_grow(answer_memory, A, B, A) == [True, False, True]
    answer_memory.give_back(B, 0)
    assert may_grow(answer_memory, B, A) == [False, True]
    answer_memory.take(5)
    answer_memory.give_back(A, 3)
    assert may_grow(answer_memory, B, A) == [True, False]


def test_released_memory_wakes_all_waiters() -> None:
    answer_memory = AnswerMemory(10)
    answer_memory.take(20)
    assert may_grow(answer_memory, A, B) == [True, False]
    answer_memory.give_back(A, 10)
    assert (answer_memory.written_bytes, may_grow(answer_memory, A, B)) == (10, [True, True])


def test_answers_have_a_quarter_of_the_memory() -> None:
    assert answer_memory_of(400).bytes_max == 100
