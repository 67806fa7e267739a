"""All interleavings of a small world, with the real rules: `decide`, `evolve`, `due` and `restore_soft_state`.

    state.py        one state of the world: the group, its soft state, what each process knows, what is in flight
    world.py        one command: decided, checked, and the next state
    steps.py        the list of steps; a new feature is a new entry there
    scopes.py       which worlds are explored, and where the search begins
    key.py          states that differ only in names and offsets are the same
    invariants.py   what holds, numbered
    silence.py      what holds when all members fall silent, and when the log is read as bytes
    search.py       breadth first, each state once; the shortest way to a violation

    python -m tests.model [--seconds 600] [--depth N] [--jobs 2] [SCOPE...]

The world: two instance ids and three processes that may take them (so two processes with one instance id are part of
it), one dynamic process, one owner at a time. Its parts never wait for each other: any process may send anything that a
client could send at that time, receive the response or not, and send its join again, with the member id that was
proposed before (like an edge that parks the request) or with a new one (like a client that starts over). `scopes.py`
has the variants: current and old clients, and an administrator for each membership feature.

Time is abstract: durations are small multiples of one unit, and the clock only moves to the next deadline. Any of the
due deadlines may come first, and any request may come before it. So sessions, phases and requests interleave, and time
stays a handful of small numbers.

The search begins in every state on the usual path of a group, from nothing to a stable group of three and on into a
rebalance; `depth` counts steps from there.
"""
