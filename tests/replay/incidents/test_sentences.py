"""The sentences for each kind of incident, on cases of the judge, which checks kinds, culprits and time spans."""

import re
from itertools import islice

import pytest

from muster.replay.incidents.incident import Incident
from tests.judge.case import play
from tests.judge.scenarios import SCENARIOS
from tests.replay.whole import incidents

PROCESS = r"'[a-z0-9-]+' \([0-9.]+\)"

SENTENCES = [
    (
        "coordinator_outage",
        "coordinator-outage",
        r"the coordinator was unavailable (from|until) .*: \d+ members? lost (its place|their places)",
    ),
    (
        "coordinator_paused",
        "coordinator-outage",
        r"the coordinator .* stalled for at least \d.* lost (its place|their places)",
    ),
    (
        "coordinator_change",
        "coordinator-change",
        r"was unavailable (from|until) .*; all \d+ members (kept|keep) their places",
    ),
    (
        "crash",
        "crash",
        rf"{PROCESS} (ended without leaving, which .*|fell silent .*), was removed .*, and no process (took|has taken)",
    ),
    ("restart_at_once", "restart", rf"{PROCESS} was restarted: it was last seen .* before it came back"),
    ("crash_loop", "crash-loop", rf"{PROCESS} disappeared and came back \d+ times within"),
    (
        "deployment",
        "deployment",
        r"\d+ processes of \d+ (stopped and started|disappeared and came back) one after another",
    ),
    (
        "deployment_at_once",
        "deployment",
        r"\d+ processes of \d+ (stopped and started|disappeared and came back) at once",
    ),
    ("slow_member", "slow-member", rf"{PROCESS} took .* to rejoin, for which \d+ other members? had to wait"),
    (
        "dropped_member",
        "slow-member",
        r"did not rejoin for .*; it was dropped when the rebalance timeout of .* had passed",
    ),
    ("slow_leader", "slow-leader", rf"the leader {PROCESS} took .* to send the assignment"),
    (
        "leader_timed_out",
        "slow-leader",
        rf"the leader {PROCESS} did not send the assignment \(.*\) within the rebalance timeout",
    ),
    (
        "leader_dies_in_sync_phase",
        "crash",
        rf"{PROCESS} ended without leaving, .*; it was the leader, and the others waited .* for its assignment",
    ),
    (
        "poll_timeout_with_reason",
        "poll-timeout",
        r"did not poll within max.poll.interval.ms and left, .* says",
    ),
    ("partitions_changed", "partitions-changed", r"orders has \d+ partitions instead of \d+"),
    ("subscription_change", "subscription-change", r"subscribed to other topics: .* instead of "),
    ("assignor_change", "assignor-change", r"rejoined with other assignors: .* instead of "),
    ("enforced_by_application", "enforced", r"asked for a rebalance; the client says"),
    (
        "removed_by_admin",
        "removed-by-admin",
        r"(was|were) removed, asked for by client admin-1 at 10.0.200.1",
    ),
    ("group_deleted", "group-deleted", r"the group was deleted, asked for by client admin-1 at 10.0.200.1, User:admin"),
    ("network_cut", "network-cut", r"\d+ members fell silent at the same moment.*, and \d+ others? did not"),
    (
        "network_cut_of_all",
        "network-cut",
        r"all \d+ members fell silent at the same moment.*; all came back; .* had not died, but were cut off",
    ),
    ("scale_up", "scale-up", r"(a new process|\d+ new processes) joined"),
    ("blue_green", "blue-green", r"\d+ new processes joined and the \d+ old ones left"),
    ("duel", "duel", r"two live processes kept taking the instance id '.*' from each other"),
]


@pytest.mark.parametrize(("scenario", "kind", "sentence"), SENTENCES, ids=[each[0] for each in SENTENCES])
def test_the_sentence_states_the_ground_truth(scenario: str, kind: str, sentence: str) -> None:
    """At least in some cases of the scenario, each of this kind."""
    reported = (_incident_of(scenario, seed, kind) for seed in range(40))
    found = list(islice((each for each in reported if each is not None), 5))
    assert found
    for incident in found:
        assert re.search(sentence, incident.headline), incident.headline


def _incident_of(scenario: str, seed: int, kind: str) -> Incident | None:
    """Return the incident of this kind; None if its processes cannot be identified."""
    case = play(SCENARIOS[scenario.replace("_", "-")], seed)
    of_kind = [each for each in incidents(case.history) if each.kind == kind and each.grade != "unknown"]
    return of_kind[0] if len(of_kind) == 1 else None
