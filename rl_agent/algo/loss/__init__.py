"""Policy losses: log-probabilities and advantages in, one number a token out."""
