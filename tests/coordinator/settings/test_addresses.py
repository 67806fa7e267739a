"""Why there is no listening at an address."""

import errno

from muster.coordinator.settings.addresses import why_not_bound


def test_another_port_is_advised_where_the_port_is_taken_alone() -> None:
    """Not for an address that is none of this machine's, nor for a right that is missing."""
    taken = why_not_bound(OSError(errno.EADDRINUSE, "Address already in use"))
    assert taken == "Address already in use; choose another port, 0 takes a free one"
    assert why_not_bound(OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")) == (
        "Cannot assign requested address"
    )
