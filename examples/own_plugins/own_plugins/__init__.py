"""Plug-ins for rl_agent from another package."""
