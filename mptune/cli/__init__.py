"""The command line, thin over the public functions; commands import at run time, so help and usage errors are fast."""

from __future__ import annotations

import errno
import os
import signal
import sys
from pathlib import Path
from typing import Final

import click

from mptune import __version__
from mptune.cli import adopting, kernels, runs, spaces, tuning
from mptune.cli.display import discard, print_error
from mptune.errors import MptuneError, NotAccurateError

__all__ = ["app", "main"]

#: All commands in order of use.
_COMMANDS = (
    *(kernels.list_kernels, kernels.backends, kernels.init, kernels.render, kernels.check, tuning.tune, adopting.adopt),
    *(runs.show, runs.pareto, runs.verify, runs.explain, runs.plot, runs.report, runs.emit, runs.export),
    *(runs.wisdom, spaces.simulate, spaces.compare),
)
#: Errors of a stream that cannot be written to: no reader, or no space.
_UNWRITABLE: Final = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class _InOrder(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the commands in the order of their declaration."""
        return list(self.commands)


_SETTINGS = {"show_default": True, "max_content_width": 100, "help_option_names": ["-h", "--help"]}


@click.group("mptune", _InOrder, commands=_COMMANDS, context_settings=_SETTINGS)
@click.version_option(__version__, message="mptune %(version)s", help="Print the version.")
def app() -> None:
    """Find how much faster a kernel runs in mixed precision, within an error you choose."""


def main() -> None:
    """Run the command line; exit codes: 0 done, 1 nothing satisfies the threshold, 2 wrong input, 130 interrupted.

    If output cannot be written, the exit code is 2; it is 0 if the reader has closed the pipe.
    """
    _open_closed_streams()
    try:
        with app.make_context("mptune", sys.argv[1:]) as context:
            code = app.invoke(context)
    except click.exceptions.Exit as leave:
        code = leave.exit_code
    except MptuneError as error:
        print_error(str(error))
        code = 1 if isinstance(error, NotAccurateError) else 2
    except click.ClickException as error:
        error.show()
        code = 2
    except (KeyboardInterrupt, click.Abort):
        # A second Ctrl-C during Python's exit would kill the process.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print_error("interrupted")
        code = 130
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        was_interrupted = isinstance(error.__context__, KeyboardInterrupt)
        code = 130 if was_interrupted else 0 if isinstance(error, BrokenPipeError) else 2
        if code == 2:
            print_error(f"output cannot be written: {error}")
        discard(1, 2)
    sys.exit(code or 0)


def _open_closed_streams() -> None:
    """Replace closed standard streams by the null device; otherwise the next open file would get their descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode)  # noqa: SIM115 - open until the process ends
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
