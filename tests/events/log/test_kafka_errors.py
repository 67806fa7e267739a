"""The errors for a broker's refusals."""

import pytest
from kio.schema.errors import ErrorCode

from muster.events.log.base import LogDenied
from muster.events.log.kafka.client.errors import refused
from muster.events.log.kafka.names import owner_id_prefix


@pytest.mark.parametrize(
    ("error", "of", "said"),
    [
        (ErrorCode.topic_authorization_failed, "ev", "TOPIC ev ("),
        (
            ErrorCode.transactional_id_authorization_failed,
            owner_id_prefix("ev_fencing_probe"),
            "TRANSACTIONAL_ID muster-ev (prefixed; ",
        ),
        (ErrorCode.cluster_authorization_failed, "ev", "CLUSTER ("),
    ],
)
def test_a_missing_right_is_named_as_it_has_to_be_given(error: ErrorCode, of: str, said: str) -> None:
    """The resource with its name, where it has one; and where all rights are listed."""
    denied = refused("this", error, "WRITE", of, who="user alice (sasl.username)")
    assert isinstance(denied, LogDenied)
    assert str(denied).endswith(
        f": user alice (sasl.username) lacks the ACL Allow WRITE on {said}all rights: docs/sidecar-acls.md)"
    )
