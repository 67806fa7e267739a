"""`python -m tests.chaos.older serve ...`: a Muster that knows no format level above 3.

What was written since, it refuses; what it makes, it makes at level 3. All else is as it is now.
"""

from muster.events import records

LEVEL = 3
records.FORMAT_LEVEL = LEVEL  # before anybody has taken it

if __name__ == "__main__":
    from muster.cli import main

    main()
