"""Options of `algo/shaping`: additions to graded rewards, and filters on rollouts."""
