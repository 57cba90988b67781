"""Run a script that imports ``kernel_tuner``: ``python -m mptune.kernel_tuner [OPTIONS] SCRIPT.py [ARGUMENTS]``."""

from __future__ import annotations

import os
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import click

from mptune.errors import MptuneError
from mptune.kernel_tuner.interface import defaults
from mptune.kernel_tuner.names import install, install_arrays


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--max-error", type=float, metavar="X", help="Largest error allowed, instead of the script's atol.")
@click.option("--budget", type=int, metavar="N", help="Evaluate this many configurations of each search.")
@click.option("--backend", metavar="NAME", help="host, cuda, hip, or the GPU or processor that is here.")
@click.option("--types", type=click.Choice(["auto"]), help="Tune the types of buffers and variables of CUDA kernels.")
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is the name of a module, such as pytest.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(script: str, arguments: tuple[str, ...], is_module: bool, **given: Any) -> None:
    """Run SCRIPT.py, whose kernel_tuner is mptune."""
    install()
    if not is_module:
        path = Path(script).resolve()
        if not path.is_file():
            raise click.UsageError(f"no file {script}")
        script = str(path)
        sys.path.insert(0, str(path.parent))
        os.chdir(path.parent)
        if (
            re.search(r"^\s*(?:import|from)\s+cupy\b", path.read_text(encoding="utf-8"), re.MULTILINE)
            and install_arrays()
        ):
            click.echo("cupy finds no device: NumPy stands in for it", err=True)
    sys.argv = [script, *arguments]
    with defaults(**{name: value for name, value in given.items() if value is not None}):
        try:
            if is_module:
                runpy.run_module(script, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(script, run_name="__main__")
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
