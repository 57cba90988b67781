"""Run a script that imports ``kernel_tuner``: ``python -m mptune.kernel_tuner [OPTIONS] SCRIPT.py [ARGUMENTS]``."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Any

import click

from mptune.errors import MptuneError
from mptune.kernel_tuner.interface import defaults
from mptune.kernel_tuner.names import install


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--max-error", type=float, metavar="X", help="Largest error allowed, instead of the script's atol.")
@click.option("--budget", type=int, metavar="N", help="Evaluate this many configurations of each search.")
@click.option("--backend", metavar="NAME", help="host, cuda, hip, or the GPU or processor that is here.")
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(script: Path, arguments: tuple[str, ...], **given: Any) -> None:
    """Run SCRIPT.py, whose kernel_tuner is mptune."""
    install()
    script = script.resolve()
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    os.chdir(script.parent)
    with defaults(**{name: value for name, value in given.items() if value is not None}):
        try:
            runpy.run_path(str(script), run_name="__main__")
        except MptuneError as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(2)
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("kernel_tuner."):
                raise
            click.echo(f"error: {error.name} of Kernel Tuner is not supported by mptune", err=True)
            sys.exit(2)


if __name__ == "__main__":
    main()
