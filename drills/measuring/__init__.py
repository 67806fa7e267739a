"""The measuring: figures, made of the members' answers and of the log's events. Pure."""
