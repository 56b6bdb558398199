"""Options of `algo/correction`: weights for the gap between the sampler and the proximal policy."""
