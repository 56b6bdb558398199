"""Policy-gradient formulas as functions on flat packed arrays."""
