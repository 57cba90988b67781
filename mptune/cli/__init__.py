"""The command line, thin over the public functions."""

from __future__ import annotations

import sys
from typing import Final

import typer

from mptune.cli.app import app
from mptune.cli.display import complain
from mptune.errors import MptuneError

__all__ = ["main"]

_INTERRUPTED: Final = 130


def main() -> None:
    """Run the command line; exit codes: 0 done, 1 nothing satisfies the threshold, 2 wrong input, 130 interrupted."""
    command = typer.main.get_command(app)
    try:
        code = command.main(standalone_mode=False)
    except typer.Exit as leave:
        code = leave.exit_code
    except MptuneError as error:
        complain(str(error))
        code = 2
    except (KeyboardInterrupt, typer.Abort):  # which of them typer lets through depends on its version
        code = _INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        code = 0
    except Exception as error:
        code = _usage_error(error)
    if code == _INTERRUPTED:
        complain("interrupted")
    sys.exit(code or 0)


def _usage_error(error: Exception) -> int:
    """Show what click found wrong with the arguments; anything else is a defect and keeps its traceback."""
    show = getattr(error, "show", None)
    if show is None:
        raise error
    show()
    return 2
