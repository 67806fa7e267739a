"""Kafka's messages as they pass through: reads parts of requests, and rewrites parts of responses."""
