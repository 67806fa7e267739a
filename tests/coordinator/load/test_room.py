"""Room for answers that are being written: beyond the limit one of them goes on, the others when it has ended."""

from muster.coordinator.load.room import Room, room_of

A, B = object(), object()


def may_grow(room: Room, *answers: object) -> list[bool]:
    return [room.may_grow(answer) for answer in answers]


def test_beyond_the_limit_the_first_that_asked_goes_on_until_it_gives_back() -> None:
    room = Room(10)
    room.take(10)
    assert may_grow(room, A, B) == [True, True]
    room.take(1)
    assert may_grow(room, A, B, A) == [True, False, True]
    room.give_back(B, 0)
    assert may_grow(room, B, A) == [False, True]
    room.take(5)
    room.give_back(A, 3)
    assert may_grow(room, B, A) == [True, False]


def test_who_gives_back_makes_room_for_all() -> None:
    room = Room(10)
    room.take(20)
    assert may_grow(room, A, B) == [True, False]
    room.give_back(A, 10)
    assert (room.written_bytes, may_grow(room, A, B)) == (10, [True, True])


def test_answers_have_a_quarter_of_the_memory() -> None:
    assert room_of(400).bytes_max == 100
