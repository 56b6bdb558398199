"""Records of a run: wandb, the console, metrics.jsonl, the summary."""
