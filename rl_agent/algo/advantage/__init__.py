"""Advantage estimators: rewards of rollouts in, one number a token out."""
