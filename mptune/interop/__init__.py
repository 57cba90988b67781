"""Other tools' file formats: reading recorded spaces, writing results."""
