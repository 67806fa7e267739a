"""Tests of the parts of the incident analysis. The judge (`tests/judge`) plays incidents by the hundred."""
