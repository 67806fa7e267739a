"""`python -m tests.events.histories [--again]`: record a history for the newest format level."""

import sys

from muster import schemas
from tests.events.histories import log_path, read_log, write
from tests.events.histories.story import story


def main(arguments: list[str]) -> int:
    level = schemas.levels()[-1]
    if log_path(level).exists() and "--again" not in arguments:
        print(f"{log_path(level)} is there already; a released one is never changed (--again, if it is not)")
        return 2
    write(level, story())
    print(f"{log_path(level)}: {len(read_log(level))} records")
    return 0


sys.exit(main(sys.argv[1:]))
