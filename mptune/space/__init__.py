"""Parameters, constraints and the search space they span."""
