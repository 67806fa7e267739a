"""Events as Avro: schemas, encoding, decoding, earlier versions. Begin in codec.py."""
