"""Corrections for the gap between the policy that sampled and the one that the trust region is around."""
