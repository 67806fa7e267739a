"""Forwarding between the sidecars of one event log: requests go to the owner of the group, and its responses back."""
