"""Episodes (one agent run each), their scheduler, and their results: records, groups, batches."""
