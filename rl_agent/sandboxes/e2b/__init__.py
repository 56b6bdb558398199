"""Sandboxes of E2B, or of a server that is compatible with its SDK."""
