"""The event log in an SQLite file. Begin in log.py, and in file.py for threads and transactions."""
