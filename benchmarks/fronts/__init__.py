"""Searches for the front of several objectives on recorded spaces: mptune's strategies and their peers."""
