"""The ledger of the rules of Kafka's coordinator: each is covered by tests, differs for a reason, or does not apply.

    python -m tests.conformance.rules            how many of each section are covered, and how
    python -m tests.conformance.rules --all      every rule with its tests or its reason
    python -m tests.conformance.rules JS ST      the rules of these sections

It reads `rules.toml`, checks its entries, finds the tests that they name, and prints the table. The ledger has a
sentence for each rule.

An entry of the ledger is in one of three states:

    JS2 = { says = "...", tier = "live", tests = ["script:a_follower_rejoins_unchanged"] }
    J15 = { says = "...", differs = "why Muster differs", tests = [...] }
    G3 = { says = "...", not_ours = "why it does not concern Muster" }

A covered rule has a tier: `live`, played on a real Kafka and on Muster, or by real clients, in every test run; `long`,
the same, but it takes minutes (`make conformance-long`); `model`, the rules alone, where a single real broker cannot be
brought into that state: `cites` then names Kafka's own test, or after `m:` its method. A test is `script:NAME`, a
script of this package, or a node name of pytest, `tests/.../test_file.py::test_name`, with the class in between if it
has one.
"""

import ast
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal

import msgspec
from rich.box import HORIZONTALS, SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

LEDGER: Final = Path(__file__).with_name("rules.toml")
ROOT: Final = Path(__file__).parents[2]
SCRIPT: Final = "script:"
WIDTH_MIN: Final = 110
STATES: Final = ("live", "long", "model", "differs", "not ours", "missing")

# The number of rules in each section of the catalogue. Part 1: the coordinator.
COORDINATOR: Final[Mapping[str, int]] = {
    "W": 21, "G": 29, "K": 8, "S": 18, "M": 8, "J": 16, "JE": 4, "JP": 7, "JC": 5, "JS": 7, "JD": 1, "P": 8, "X": 8,
    "ST": 29, "I": 9, "RB": 15, "SG": 20, "SX": 8, "H": 9, "SE": 11, "L": 16, "OC": 21, "TO": 10, "OF": 8, "OD": 8,
    "DG": 8, "LS": 6, "DL": 6, "FC": 5, "RE": 14, "LD": 14, "EX": 10, "TM": 6, "RS": 23, "CC": 6, "DV": 9, "IO": 4,
    "QK": 12, "MX": 16,
}  # fmt: skip
# Part 2: what clients rely on.
CLIENTS: Final[Mapping[str, int]] = {"CA": 8, "CB": 16, "CS": 7, "CD": 7, "CE": 6, "CF": 6, "CG": 4, "CH": 8}
SECTIONS: Final[Mapping[str, int]] = {**COORDINATOR, **CLIENTS}

TITLES: Final[Mapping[str, str]] = {
    "W": "wire shape, versions, defaults", "G": "gates before the group", "K": "configuration and limits",
    "S": "states and group data", "M": "member identity", "J": "JoinGroup", "JE": "JoinGroup in Empty",
    "JP": "JoinGroup in PreparingRebalance", "JC": "JoinGroup in CompletingRebalance", "JS": "JoinGroup in Stable",
    "JD": "JoinGroup in Dead", "P": "pending members", "X": "max group size", "ST": "static members",
    "I": "initial rebalance delay", "RB": "rebalances and the join phase", "SG": "SyncGroup",
    "SX": "pending-sync expiry", "H": "Heartbeat", "SE": "session expiry", "L": "LeaveGroup", "OC": "OffsetCommit",
    "TO": "TxnOffsetCommit", "OF": "OffsetFetch", "OD": "OffsetDelete", "DG": "DescribeGroups", "LS": "ListGroups",
    "DL": "DeleteGroups", "FC": "FindCoordinator", "RE": "what is written", "LD": "load, unload, shutdown",
    "EX": "expiry of offsets and groups", "TM": "timers", "RS": "causes of rebalances", "CC": "order and concurrency",
    "DV": "Kafka's two coordinators", "IO": "the newer protocols", "QK": "quirks", "MX": "state by request",
    "CA": "clients: discovery and limits", "CB": "clients: JoinGroup", "CS": "clients: SyncGroup",
    "CD": "clients: heartbeats", "CE": "clients: LeaveGroup", "CF": "clients: commits and fetches",
    "CG": "clients: starting a rebalance", "CH": "admin client",
}  # fmt: skip


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of the ledger; see the module for its three states."""

    says: str
    tier: Literal["live", "long", "model"] | None = None
    tests: tuple[str, ...] = ()
    cites: str = ""
    differs: str = ""
    not_ours: str = ""

    @property
    def state(self) -> str:
        """One of STATES; for a malformed entry, the first that fits."""
        return self.tier or ("differs" if self.differs else "not ours" if self.not_ours else "missing")

    def faults(self) -> Iterator[str]:
        """The errors in the form of the entry."""
        if not self.says:
            yield "it does not say what the rule is"
        if sum(map(bool, (self.tier, self.differs, self.not_ours))) != 1:
            yield "it should have one of tier, differs, not_ours"
        if (self.tier or self.differs) and not self.tests:
            yield "it names no test"
        if self.not_ours and self.tests:
            yield "it is not ours, and yet has tests"
        if bool(self.cites) != (self.tier == "model"):
            yield "a rule of tier model, and no other, cites Kafka's own test"


Ledger = Mapping[str, Mapping[str, Rule]]
"""The rules by section, then by number."""


def load(path: Path = LEDGER) -> Ledger:
    """Read the ledger. Raises msgspec.ValidationError, tomllib.TOMLDecodeError."""
    return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), dict[str, dict[str, Rule]])


def numbers(section: str) -> list[str]:
    """The numbers of a section's rules, W1 to W21."""
    return [f"{section}{number}" for number in range(1, SECTIONS[section] + 1)]


@cache
def tests_in(file: Path) -> frozenset[str]:
    """The tests in a file, `Class::test` in a class; read without importing. Raises OSError."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        methods = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        found |= {prefix + each.name for each in methods if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    return frozenset(name for name in found if name.rpartition("::")[2].startswith("test_"))


def is_there(test: str) -> bool:
    """Return whether a test that is no script exists."""
    path, _, name = test.partition("::")
    file = ROOT / path
    return file.is_file() and name in tests_in(file)


def meets_others(test: str) -> bool:
    """Return whether a test that is no script uses a real broker or a real client, by its file's marks."""
    text = (ROOT / test.partition("::")[0]).read_text(encoding="utf-8")
    return any(f"pytest.mark.{mark}" in text for mark in ("broker", "clients"))


# ---- output --------------------------------------------------------------------------------------


def summary(ledger: Ledger) -> Table:
    """A line for each section: the number of rules in each state."""
    title = f"The {sum(SECTIONS.values())} rules of Kafka's coordinator"
    table = Table("", "", "rules", *STATES, title=title, box=SIMPLE_HEAD)
    for column in table.columns[2:]:
        column.justify = "right"
    total: Counter[str] = Counter()
    for section, size in SECTIONS.items():
        states = Counter(rule.state for rule in ledger.get(section, {}).values())
        states["missing"] += size - states.total()
        total += states
        table.add_row(section, TITLES[section], str(size), *_counts(states), end_section=section in {"MX", "CH"})
    table.add_row("all", "", str(sum(SECTIONS.values())), *_counts(total), style="bold")
    return table


def _counts(states: Mapping[str, int]) -> list[str]:
    return [str(states.get(state, 0) or "") for state in STATES]


def listing(ledger: Ledger, sections: Sequence[str]) -> Table:
    """A line for each rule: its text, its state, and its tests or the reason."""
    table = Table("rule", "says", "state", "shown by", box=HORIZONTALS, show_lines=True)
    table.columns[-1].overflow = "fold"
    for section in sections:
        rules = ledger.get(section, {})
        for number in numbers(section):
            rule = rules.get(number, Rule(says=""))
            reasons = [rule.differs or rule.not_ours, f"after {rule.cites}" if rule.cites else ""]
            shown = "\n".join([each for each in reasons if each] + list(rule.tests))
            table.add_row(number, escape(rule.says), rule.state, escape(shown))
    return table


def main(arguments: Sequence[str]) -> int:
    """Print the requested parts; return the exit code."""
    sections = list(SECTIONS) if "--all" in arguments else list(arguments)
    unknown = [section for section in sections if section not in SECTIONS]
    if unknown:
        print(f"there is no section {unknown[0]!r}; there are {', '.join(SECTIONS)}, and --all", file=sys.stderr)
        return 2
    ledger = load()
    console = Console()
    console.width = max(console.width, WIDTH_MIN)
    console.print(listing(ledger, sections) if sections else summary(ledger))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
