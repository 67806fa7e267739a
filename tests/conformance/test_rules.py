"""The ledger: every rule is in it once, well-formed, and the tests that it names exist."""

import pytest

from tests.conformance.playbook import SCRIPTS
from tests.conformance.rules import COORDINATOR, SCRIPT, SECTIONS, Rule, is_there, load, main, meets_others, numbers

LEDGER = load()
RULES = {number: rule for rules in LEDGER.values() for number, rule in rules.items()}
LONG = {script.name: script.long for script in SCRIPTS}


def test_the_catalogue_has_505_rules() -> None:
    """443 of the coordinator, 62 of its clients."""
    assert (sum(COORDINATOR.values()), sum(SECTIONS.values())) == (443, 505)


def test_every_section_is_in_the_order_of_the_catalogue() -> None:
    assert list(LEDGER) == list(SECTIONS)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_rule_occurs_once_and_in_order(section: str) -> None:
    """TOML itself refuses a second entry of the same number."""
    assert list(LEDGER.get(section, {})) == numbers(section)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_entry_is_well_formed(section: str) -> None:
    """Each has one state, with the fields that belong to it."""
    faults = {number: list(rule.faults()) for number, rule in LEDGER.get(section, {}).items()}
    assert {number: found for number, found in faults.items() if found} == {}


@pytest.mark.parametrize("section", SECTIONS)
def test_the_tests_that_a_rule_names_exist(section: str) -> None:
    """Scripts by their registry, other tests by the text of their files; none is named twice."""
    for number, rule in LEDGER.get(section, {}).items():
        others = [test for test in rule.tests if not test.startswith(SCRIPT)]
        assert [name for name in scripts_of(rule) if name not in LONG] == [], number
        assert [test for test in others if not is_there(test)] == [], number
        assert len(set(rule.tests)) == len(rule.tests), number


@pytest.mark.parametrize("section", SECTIONS)
def test_a_tier_is_that_of_its_tests(section: str) -> None:
    """A live rule has a test with servers or clients that always runs, a long one a script of minutes, a model one
    none.
    """
    for number, rule in LEDGER.get(section, {}).items():
        scripts = scripts_of(rule)
        match rule.tier:
            case "live":
                others = [test for test in rule.tests if not test.startswith(SCRIPT)]
                assert any(not LONG[name] for name in scripts) or any(map(meets_others, others)), number
            case "long":
                assert any(LONG[name] for name in scripts), number
            case "model":
                assert not scripts, number


def scripts_of(rule: Rule) -> list[str]:
    return [test.removeprefix(SCRIPT) for test in rule.tests if test.startswith(SCRIPT)]


def test_the_rules_a_script_claims_to_show_are_in_the_ledger() -> None:
    """A script's rules are rules of the catalogue, or known bugs by their number (R16)."""
    named = {rule for script in SCRIPTS for rule in script.rules.split(", ")}
    assert {rule for rule in named if rule not in RULES and not rule.startswith("R")} == set()


@pytest.mark.parametrize(
    "rule",
    [
        Rule(says="nothing of its state"),
        Rule(says="two states", tier="live", tests=("script:a",), differs="why"),
        Rule(says="no test", tier="live"),
        Rule(says="no test that shows the difference", differs="why"),
        Rule(says="not ours, and tested", not_ours="why", tests=("script:a",)),
        Rule(says="no citation", tier="model", tests=("tests/test_a.py::test_a",)),
        Rule(says="", not_ours="why"),
    ],
    ids=lambda rule: rule.says,
)
def test_a_malformed_entry_is_noticed(rule: Rule) -> None:
    assert list(rule.faults())


@pytest.mark.parametrize(
    "test",
    ["tests/conformance/test_rules.py::test_nothing", "tests/nowhere.py::test_a", "tests/conformance/test_rules.py"],
)
def test_a_missing_test_is_noticed(test: str) -> None:
    assert not is_there(test)


def test_the_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The sum; one section; every rule; and an unknown section."""
    assert main([]) == main(["JS"]) == main(["--all"]) == 0
    output = capsys.readouterr().out
    assert all(text in output for text in ("505 rules", "JS7", "CH8"))
    assert main(["XY"]) == 2
    assert "no section 'XY'" in capsys.readouterr().err
