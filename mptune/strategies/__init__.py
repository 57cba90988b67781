"""Search algorithms behind ask and tell."""
