"""The results of commands: pure functions from a history to a frozen value, which `render/` prints.

why.py          `why`: the incidents of a group.
story.py        `history`: one line for each event.
state.py        `state`: a group at a given time.
states.py       `state`: all groups at a given time.
groups.py       `groups`: one line for each group.
diff.py         `diff`: a group at two times.
extent.py       The time span that a log covers.
digest.py       `digest`: the most important incidents of all groups.
storms.py       Incidents of several groups with a common cause.
by_group.py     Distributes the records of a log to their groups.
kept_records.py Records that are kept until they are needed, in memory or in a temporary file.
group_tail.py   The last records of a group, which show its last incident.
surveys.py      A first pass over a log, to find timestamps that cannot be right.
event_texts.py  Each event type as one line of English.
"""
