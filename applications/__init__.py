"""The applications that ship with mptune: one definition a file, with its kernels."""
