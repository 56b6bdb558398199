"""Options of `algo/advantage`: rewards -> advantage of each token."""
