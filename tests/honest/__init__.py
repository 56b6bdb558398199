"""Honest solutions of ordinary kinds: small repositories, each with its gold patch and another correct solution."""
