"""Inference: the vLLM server process, its client, and a scripted engine that demonstrates solutions."""
