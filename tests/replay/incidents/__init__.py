"""Tests of incidents. The judge (`tests/judge`) plays them by the hundred; here stand the parts."""
