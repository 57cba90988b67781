"""``python -m mptune``."""

from mptune.cli import main

main()
