"""What strategies believe: surrogates of time, error and validity, and what a candidate promises."""
