"""Sandboxes of which we can only ask that a script be run: E2B's, containers."""
