"""Tasks: the work that a data-set row or a generator gives an agent."""
