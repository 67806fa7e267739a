"""The whole runtime without a clock, a disk or a network: time passes only when nothing else is left to do."""
