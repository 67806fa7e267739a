"""Tests of reading logs and exports."""
