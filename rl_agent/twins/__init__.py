"""Twins: test files with a wrong expectation, which a right solution must fail."""
