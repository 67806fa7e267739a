"""Tests of the results of commands."""
