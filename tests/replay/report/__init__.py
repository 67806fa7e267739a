"""Tests of the report: its values, its document, and the document in a real browser."""
