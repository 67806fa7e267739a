"""A table is a dictionary, order included, of which every version stays as it was when it was copied."""

import copy
import pickle

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from muster.events.tables import SMALL, Table, TableSet

KEYS = st.integers(0, 3 * SMALL)


class Versions(RuleBasedStateMachine):
    """Tables beside dictionaries that are really copied."""

    def __init__(self) -> None:
        super().__init__()
        self.versions: list[tuple[Table[int, int], dict[int, int]]] = []

    @initialize(size=st.sampled_from((0, 1, SMALL, SMALL + 1, 2 * SMALL)))
    def begin(self, size: int) -> None:
        entries = {key: -key for key in range(size)}
        self.versions.append((Table(entries), entries))

    @rule(i=st.integers(0))
    def copied(self, i: int) -> None:
        table, entries = self.versions[i % len(self.versions)]
        self.versions.append((table.copy(), entries.copy()))

    @rule(i=st.integers(0), key=KEYS, value=st.integers())
    def put(self, i: int, key: int, value: int) -> None:
        for version in self.versions[i % len(self.versions)]:
            version[key] = value

    @rule(i=st.integers(0), keys=st.lists(KEYS, max_size=2 * SMALL), value=st.integers())
    def put_many(self, i: int, keys: list[int], value: int) -> None:
        for version in self.versions[i % len(self.versions)]:
            version.update(dict.fromkeys(keys, value))

    @rule(i=st.integers(0), key=KEYS)
    def popped(self, i: int, key: int) -> None:
        table, entries = self.versions[i % len(self.versions)]
        assert table.pop(key, None) == entries.pop(key, None)

    @rule(i=st.integers(0), key=KEYS)
    def deleted(self, i: int, key: int) -> None:
        table, entries = self.versions[i % len(self.versions)]
        if key in entries:
            del table[key], entries[key]
        else:
            with pytest.raises(KeyError):
                del table[key]

    @rule(i=st.integers(0))
    def cleared(self, i: int) -> None:
        for version in self.versions[i % len(self.versions)]:
            version.clear()

    @rule(i=st.integers(0), key=KEYS)
    def looked_up(self, i: int, key: int) -> None:
        table, entries = self.versions[i % len(self.versions)]
        assert (key in table) == (key in entries)
        assert table.get(key, "none") == entries.get(key, "none")
        if key in entries:
            assert table[key] == entries[key]
        else:
            with pytest.raises(KeyError):
                table[key]

    @rule(i=st.integers(0))
    def walked(self, i: int) -> None:
        table, entries = self.versions[i % len(self.versions)]
        assert list(table.items()) == list(entries.items())
        assert list(table.values()) == list(entries.values())
        assert list(table) == list(table.keys()) == list(entries)

    @invariant()
    def sizes_are_those_of_the_dictionaries(self) -> None:
        for table, entries in self.versions:
            assert len(table) == len(entries)

    def teardown(self) -> None:
        for table, entries in self.versions:
            assert list(table.items()) == list(entries.items())


Versions.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestVersions = Versions.TestCase


@pytest.mark.parametrize("size", [0, 3, 100])
def test_a_table_equals_a_dictionary_and_is_copied_as_one(size: int) -> None:
    """`copy`, `pickle` and `==` behave as with a dictionary."""
    entries = dict.fromkeys(range(size), "x")
    table = Table(entries).copy()
    table[-1] = entries[-1] = "y"
    assert table == entries
    assert entries == table
    assert table == Table(entries)
    assert table != {}
    assert table != [1]
    assert repr(table) == repr(entries)
    assert copy.deepcopy(table) == pickle.loads(pickle.dumps(table)) == table


def test_a_key_put_back_into_a_large_table_is_the_last_one() -> None:
    """As in a dict; an entry that is only changed stays in its place."""
    table = Table(dict.fromkeys(range(3 * SMALL), "x")).copy()
    del table[7]
    table[7] = table[8] = "y"
    assert list(table) == [*range(7), *range(8, 3 * SMALL), 7]


def test_a_key_missing_from_a_large_table_has_a_default() -> None:
    """In a version that shares the others with the one before."""
    before = Table(dict.fromkeys(range(3 * SMALL), "x"))
    after = before.copy()
    del after[7]
    assert (after.get(7), after.get(7, "none"), after.pop(7, "none"), after.get(8)) == (None, "none", "none", "x")
    assert before.get(7) == "x"


def test_a_changed_value_of_a_large_table_is_found_by_its_key() -> None:
    """Each version has its own."""
    before = Table(dict.fromkeys(range(3 * SMALL), "x"))
    after = before.copy()
    after[7] = after[-1] = "y"
    assert (after.get(7), after.get(-1, "none"), after.get(8)) == ("y", "y", "x")
    assert (before.get(7), before.get(-1, "none")) == ("x", "none")


def test_a_set_of_which_a_version_stays_as_it_was() -> None:
    """As in a set, in the order in which it was filled."""
    before = TableSet(range(100, 0, -1))
    after = before.copy()
    after.discard(100)
    after.add(0)
    assert (100 in before, 100 in after, len(before), len(after)) == (True, False, 100, 100)
    assert before == set(range(1, 101))
    assert after - {99} == set(range(99))
    assert next(iter(after)) == 99
    after.clear()
    assert not after
    assert repr(TableSet("a")) == "{'a'}"
