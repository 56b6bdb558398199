"""New weights on their way from trainer to engine: one sender and receiver pair a backend."""
