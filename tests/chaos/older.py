"""`python -m tests.chaos.older serve ...`: a Muster that knows no format level above 3.

It refuses logs with later levels, and creates logs at level 3. Everything else is the current version.
"""

from muster.events import records

LEVEL = 3
records.FORMAT_LEVEL = LEVEL  # before anything imports it

if __name__ == "__main__":
    from muster.cli import main

    main()
