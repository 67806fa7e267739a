"""A fixture for the available consumers in other languages; a conftest imports it by name."""

import pytest

from tests.brokers.fixtures import skip_loudly
from tests.clients.foreign.consumers import FOREIGN_LIBRARIES, ForeignConsumer
from tests.clients.foreign.programs import ToolMissing


@pytest.fixture(params=FOREIGN_LIBRARIES, ids=lambda library: library.__name__)
def foreign_library(request: pytest.FixtureRequest) -> type[ForeignConsumer]:
    """The class of a consumer in another language, already built. Skipped, with a warning, if the language is
    missing.
    """
    chosen: type[ForeignConsumer] = request.param
    try:
        chosen.program.command()
    except ToolMissing as error:
        skip_loudly(request, str(error))
    return chosen
