"""Reinforcement learning for coding agents that run in their real CLIs."""
