"""The names of things, as types. Strings on the wire; told apart here so that one is not taken for another."""

from typing import NewType

GroupId = NewType("GroupId", str)
MemberId = NewType("MemberId", str)
GroupInstanceId = NewType("GroupInstanceId", str)

UNKNOWN_MEMBER_ID = MemberId("")
"""Sent by a client that has no member id yet (UMI in the catalogue of rules)."""
