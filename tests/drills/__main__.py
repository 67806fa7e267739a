"""`python -m tests.drills [KIND] [OPTIONS]`: a local drill on a real broker that is started for it; for `make drill`.

KIND is takeover, restart, fence, partition or slow-broker; options are those of `muster drill KIND`. Exit code 2 if no
broker is available, otherwise the drill's.
"""

import subprocess
import sys

from tests.brokers.broker import NoBroker
from tests.brokers.choice import running_broker


def main() -> int:
    kind, *options = sys.argv[1:] or ["takeover"]
    try:
        with running_broker(settings={"group.min.session.timeout.ms": "6000"}) as broker:
            print(broker.how, file=sys.stderr)
            command = [sys.executable, "-m", "muster", "drill", kind, "--local", "--kafka", broker.bootstrap, *options]
            with subprocess.Popen(command) as drill:
                while True:
                    try:
                        return drill.wait()
                    except KeyboardInterrupt:  # the terminal has signalled the drill, too, which cleans up first
                        continue
    except NoBroker as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
