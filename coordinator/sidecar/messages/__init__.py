"""Kafka's messages as they pass through: what is read of requests, what is changed in answers."""
