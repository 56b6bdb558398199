"""Containers of Docker, or of Podman, through its HTTP API."""
