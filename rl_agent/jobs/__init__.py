"""The jobs of the command line: train, sft, rollout, evaluate, validate, plan. Each is one short loop."""
