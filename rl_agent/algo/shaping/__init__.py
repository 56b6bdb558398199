"""Shaping: what is added to the graded rewards, and which rollouts train at all."""
