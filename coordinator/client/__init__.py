"""The client of a coordinator: for programs, and for the commands other than `muster serve`.

Programs import it as `muster.admin`.

commands/            `muster members`, `adopt`, `release`, `groups`, `status`, `config check` and `log`
group_admin.py       `GroupAdmin`: its functions for administrators
requests.py          the requests that these functions send, and the errors of responses
coordinator_link.py  finds groups' coordinators, connects, retries; defines the errors that are raised
group_moves.py       moves a group with live members to or from the upstream cluster
left_shadows.py      finds and removes shadows that a Muster left behind when it was shut down for good
"""
