"""Isolated boxes in which agents and tests run, all behind one contract."""
