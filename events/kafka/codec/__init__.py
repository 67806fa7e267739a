"""Kafka's messages as bytes, by kio's schemas; their meaning is not known here.

primitives.py      Kafka's primitive types: fixed sizes, varints, tagged fields.
reading.py         Readers that trust no length in a message, and skip unknown tagged fields.
skipping.py        Finding the end of each field of a message without decoding it.
splicing.py        Cutting a message at its fields, so that some can be replaced and all others stay as they are.
walk.py            The one walk of kio's schemas, from which reading, writing and skipping are made.
writing.py         Writers that take the fields of all versions, and write those of one, in steps.
"""
