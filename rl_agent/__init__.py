"""Reinforcement learning for coding agents inside the real agent program."""
