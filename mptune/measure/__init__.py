"""What turns configurations into trials."""
