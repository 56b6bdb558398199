"""Sandboxes of E2B, or of any server that speaks to its SDK."""
