"""What the Bayesian strategies share: their frame, and models of time, error and validity."""
