"""Kafka's messages as bytes, by kio's schemas; what they mean is not known here.

primitives.py      Kafka's primitive types: what has a fixed size, numbers of variable length, tagged fields.
reading.py         Readers that trust no length they are told, and step over what they do not know.
skipping.py        How far each field of a message reaches, in bytes that nobody decodes.
splicing.py        Bytes of a message cut at its fields, so that some can be replaced and all others stay as they are.
walk.py            The one walk of kio's schemas, from which reading, writing and skipping are made.
writing.py         Writers that take the fields of all versions, and write those of one, in steps.
"""
