"""What is measured around a launch."""
