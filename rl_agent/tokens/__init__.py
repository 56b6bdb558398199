"""Messages, turns, chains and segments: the tokens that the model saw and sampled, and their use in training."""
