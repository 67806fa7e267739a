"""The server. `group/` is the rules (pure), `wire/` Kafka's messages; the files beside them are the shell around both."""
