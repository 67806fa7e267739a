"""Errors when a process cannot listen at an address."""

import errno
import socket

from muster.coordinator.settings.addresses import why_not_bound


def test_the_advice_depends_on_whether_the_port_or_the_host_is_invalid() -> None:
    """A missing permission has nothing to do with either."""
    taken = why_not_bound(OSError(errno.EADDRINUSE, "Address already in use"))
    assert taken == "Address already in use; choose another port, 0 takes a free one"
    elsewhere = "name an address of this machine; 0.0.0.0 is all of IPv4, [::] all of both families"
    not_ours = why_not_bound(OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"))
    assert not_ours == f"Cannot assign requested address; {elsewhere}"
    unknown = why_not_bound(socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
    assert unknown == f"Name or service not known; {elsewhere}"
    assert why_not_bound(PermissionError(errno.EACCES, "Permission denied")) == "Permission denied"
