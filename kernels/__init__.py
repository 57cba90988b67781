"""The kernels that ship with mptune, one definition a file."""
