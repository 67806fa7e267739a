"""Kafka's messages as bytes, by kio's schemas. Their meaning is not known here. Begin in walk.py."""
