"""E2B-compatible server over any sandbox provider."""
