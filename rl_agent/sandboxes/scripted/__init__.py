"""Sandboxes over services that can only run scripts: E2B and containers."""
