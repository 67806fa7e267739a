"""A frame fuzzer: whatever bytes a client sends, it gets a response, or its connection is closed with a named fault.

generator.py     frames from a seed: valid ones, cut ones, hostile counts and lengths, of every API and version
standalone.py    each on a connection of its own, without sockets sidecar.py       the same over sockets, with a broker
behind verdict.py       what must hold after each, and after all __main__.py      the long form: `make frames`
"""
