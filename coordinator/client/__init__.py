"""The client of a coordinator: for programs, and for the commands beside `muster serve`.

Programs import it as `muster.admin`.

commands/            `muster members`, `adopt`, `release`, `groups`, `status`, `config check` and `log`
group_admin.py       `GroupAdmin`: the functions
requests.py          the requests that they are made of, and errors of responses
coordinator_link.py  finding groups' coordinators, connections, retries; the errors that are raised
group_moves.py       moving a live group to or from the cluster upstream
left_shadows.py      shadows that a Muster which is gone has left, and their removal
"""
