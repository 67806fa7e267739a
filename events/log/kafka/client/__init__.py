"""The link to the Kafka cluster that has the log: requests to the right broker, errors, configs. Begin in link.py."""
