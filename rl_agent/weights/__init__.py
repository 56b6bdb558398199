"""Transport of new weights from trainer to engine: one sender and receiver pair per backend."""
