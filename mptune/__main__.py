"""The command ``mptune``, and ``python -m mptune``."""

import os
import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is imported, which takes a moment, has the exit code 130 as well."""
    try:
        from mptune.cli import main as run
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr, flush=True)
        os._exit(130)  # an import that was cut short may leave threads and locks behind
    run()


if __name__ == "__main__":
    main()
