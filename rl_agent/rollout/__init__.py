"""One agent run (episode), many of them (scheduler), and what they leave (records, groups, batches)."""
