"""Sandboxes in which agents and tests run: one contract, several providers."""
