"""Events as Avro: schemas, encoding, decoding, earlier versions.

codec.py      Events as bytes: the registry of schemas, `encode` and `decode`, and the records of a transition.
decoder.py    Makes decoders: each writer schema becomes straight-line Python that builds the typed event directly.
repeats.py    What repeats itself in a history, so that a decoder takes it as it was read before.
encoder.py    Makes encoders: a schema becomes straight-line Python that writes the typed event directly.
glance.py     The few fields of an event that tell where a history stands, for folds over millions of them.
numbers.py    The incarnation and `seq` of a group's event, and nothing else of it.
schema.py     Avro schemas as the makers of coders want them: one shape for all types, names replaced by what they
              stand for.
"""
