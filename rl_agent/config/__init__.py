"""Config dataclasses, one module per group, with typed loading, checks and option lookup."""
