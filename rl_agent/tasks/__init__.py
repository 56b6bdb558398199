"""Tasks: what a row or a generator gives an agent to do."""
