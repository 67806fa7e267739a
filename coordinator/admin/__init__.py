"""The client for administrators, which `muster members`, `adopt`, `release` and `groups` use.

Programs import it as `muster.admin`.

group_admin.py    `GroupAdmin`: the functions
requests.py       the requests that they are made of, and errors of responses
link.py           finding groups' coordinators, connections, retries; the errors that are raised
moving.py         moving a live group to or from the cluster upstream
repairing.py      repairing a quarantined group
shadows.py        shadows that a Muster which is gone has left, and their removal
"""
