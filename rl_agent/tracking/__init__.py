"""What a run shows and records: wandb, the console, metrics.jsonl, the summary."""
