"""The Kullback-Leibler penalty that keeps the policy near a reference, in the reward or in the loss."""
