"""Error metrics and what they say of a kernel's outputs."""
