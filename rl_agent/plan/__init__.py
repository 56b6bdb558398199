"""Predict memory, placement and time of a run from its configuration (`job=plan`)."""
