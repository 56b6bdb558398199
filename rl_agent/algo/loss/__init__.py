"""Options of `algo/loss`: log-probabilities and advantages -> loss of each token."""
