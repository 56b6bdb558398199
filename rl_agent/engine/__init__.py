"""Inference: the vLLM server process, its client, and a scripted stand-in that demonstrates."""
