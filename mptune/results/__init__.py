"""What trials say: the trial itself, objective, front, speedup and its interval, unseen inputs."""
