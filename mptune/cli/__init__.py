"""The command line, thin over the public functions.

Each command imports what it needs when it runs, so that help, listings and usage errors answer at once.
"""

from __future__ import annotations

import sys

import click

from mptune import __version__
from mptune.cli import kernels, runs, spaces, tuning
from mptune.cli.display import print_error
from mptune.errors import MptuneError

__all__ = ["app", "main"]

#: In the order they are used in.
_COMMANDS = (
    *(kernels.list_kernels, kernels.backends, kernels.render, kernels.check, tuning.tune),
    *(runs.show, runs.pareto, runs.plot, runs.report, runs.emit, runs.export, spaces.simulate, spaces.compare),
)


class _InOrder(click.Group):
    """Lists the commands as they were added, not by the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click wants it
        return list(self.commands)


@click.group("mptune", _InOrder, commands=_COMMANDS, context_settings={"show_default": True, "max_content_width": 100})
@click.version_option(__version__, message="mptune %(version)s", help="Print the version.")
def app() -> None:
    """Find how much faster a kernel runs in mixed precision, within an error you choose."""


def main() -> None:
    """Run the command line; exit codes: 0 done, 1 nothing satisfies the threshold, 2 wrong input, 130 interrupted."""
    try:
        with app.make_context("mptune", sys.argv[1:]) as context:
            code = app.invoke(context)
    except click.exceptions.Exit as leave:
        code = leave.exit_code
    except MptuneError as error:
        print_error(str(error))
        code = 2
    except click.ClickException as error:
        error.show()
        code = 2
    except (KeyboardInterrupt, click.Abort):
        print_error("interrupted")
        code = 130
    except BrokenPipeError:
        sys.stderr.close()
        code = 0
    sys.exit(code or 0)
