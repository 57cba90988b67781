"""Measurement: configurations become trials, on devices or out of a recording."""
