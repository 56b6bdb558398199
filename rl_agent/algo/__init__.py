"""Policy-gradient formulas as pure functions on flat packed arrays."""
