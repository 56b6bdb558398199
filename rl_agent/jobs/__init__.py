"""One short, readable loop a job: train, sft, and what else the command line can run."""
