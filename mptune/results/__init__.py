"""Trials and their evaluation: objective, front, speedup and its interval, unseen inputs."""
