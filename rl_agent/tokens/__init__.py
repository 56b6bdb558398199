"""Messages, turns, chains and segments: which tokens the model saw and sampled, and what becomes of them."""
