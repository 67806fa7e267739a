"""ApiVersions (key 18).

v1 adds the throttle time. v3 is flexible, except for the header of the response, names the client's software, and can
report features (KIP-511, KIP-584); there are none here. v4 lets a feature start at version 0.

The response is derived from the registrations. A client with an unknown version gets the body of v0 with error 35 and
the versions of this API, so that it can retry.
"""

import re

from kio.schema.errors import ErrorCode

from muster.coordinator.service import Service
from muster.coordinator.wire.api import Answer, Api, Body, Fields, RequestContext

KEY = 18
VERSIONS = range(5)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def offering(others: tuple[Api, ...]) -> Api:
    """Build the registration of ApiVersions, which offers these APIs and itself."""

    def handle(body: Body, _context: RequestContext, _service: Service, answer: Answer) -> None:
        if _has_bad_software(body):
            answer({"error_code": ErrorCode.invalid_request, "api_keys": ()})
        else:
            answer({"error_code": ErrorCode.none, "api_keys": offered})

    api = Api(key=KEY, name="ApiVersions", versions=VERSIONS, handle=handle)
    offered = [_entry(each) for each in sorted((*others, api), key=lambda each: each.key)]
    return api


def unsupported_version() -> Fields:
    """Return the body of v0 for a version that is not offered."""
    offered = {"api_key": KEY, "min_version": VERSIONS[0], "max_version": VERSIONS[-1]}
    return {"error_code": ErrorCode.unsupported_version, "api_keys": [offered]}


def _has_bad_software(body: Body) -> bool:
    return hasattr(body, "client_software_name") and not (
        _SOFTWARE.fullmatch(body.client_software_name) and _SOFTWARE.fullmatch(body.client_software_version)
    )


def _entry(api: Api) -> Fields:
    return {"api_key": api.key, "min_version": api.versions[0], "max_version": api.versions[-1]}
