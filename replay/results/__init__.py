"""The results of commands: pure functions from a history to a frozen value, which `render/` prints.

why.py          `why`: the incidents of a group.
story.py        `history`: events in one line each.
state.py        `state`: a group at a moment.
states.py       `state`: all groups at a moment.
groups.py       `groups`: a line for each group.
diff.py         `diff`: a group at two moments.
extent.py       from when until when a log tells of groups
digest.py       `digest`: what mattered over all groups, and storms over several of them.
by_group.py     The records of a log, given to their groups.
kept_records.py Records that are kept until they are told, in memory or in a temporary file.
group_tail.py   The last records of a group, which say what its last incident was.
surveys.py      A first pass over a log, for times that cannot be right.
event_texts.py  Each event type in one line of English.
"""
