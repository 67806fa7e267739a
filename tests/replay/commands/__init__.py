"""Tests of the commands of `muster replay`, as users run them."""
