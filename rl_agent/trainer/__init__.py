"""The Megatron-core policy-gradient step: model, packing, optimizer, checkpoints, Hugging Face weights."""
