"""Tests of the rebalance analysis."""
