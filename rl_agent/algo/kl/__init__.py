"""Options of `algo/kl`: penalty for the distance to a reference policy."""
