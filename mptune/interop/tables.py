"""A finished run as a table (CSV, Parquet) or as JSON."""

from __future__ import annotations

import io
import json
from typing import Any, Final

from mptune.errors import MptuneError
from mptune.interop.recorded import Format
from mptune.markup import plain
from mptune.run import Run, json_document
from mptune.store.info import plain as as_json

#: First characters of a cell that a spreadsheet reads as a formula (OWASP, "CSV Injection").
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\n")


def to_csv(run: Run) -> str:
    """Return a run as CSV: a header line, then a line per trial; an unknown number is an empty field.

    A text that begins with ``=``, ``+``, ``-`` or ``@`` gets an apostrophe, as spreadsheets would run it as a formula.
    Control characters of terminals become their number, such as ``<U+001B>``.
    """
    frame = run.to_dataframe()
    texts = {name: frame[name].map(_as_text) for name in frame.columns if frame[name].dtype.kind not in "biuf"}
    return str(frame.assign(**texts).rename(columns=_as_text).to_csv(index=False, lineterminator="\n"))


def _as_text(cell: Any) -> Any:
    if not isinstance(cell, str):
        return cell
    # Rows end with a line feed, so a carriage return within a cell would not be quoted.
    text = plain(cell.replace("\r\n", "\n").replace("\r", "\n"))
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text


def to_parquet(run: Run) -> bytes:
    """Return a run as a Parquet file: a row per trial, the columns of :meth:`Run.to_dataframe`.

    An unknown number is null, a permutation a list, and a parameter with values of several types text.
    """
    frame = run.to_dataframe()
    frame = frame.assign(
        **{name: frame[name].map(str) for name in run.parameter_names if frame[name].map(type).nunique() > 1}
    )
    file = io.BytesIO()
    try:
        frame.to_parquet(file, engine="pyarrow", index=False)
    except ImportError as error:
        raise MptuneError('the format parquet needs pyarrow: pip install "mptune[parquet]"') from error
    return file.getvalue()


def to_json(run: Run) -> str:
    """Return a run as one JSON document: ``summary``, ``settings`` and ``trials``; an unknown number is null."""
    trials = [as_json(trial) for trial in run.trials]
    for trial in trials:
        trial |= trial.pop("measurement")
    document = {"summary": run.summary(), "settings": run.info.to_json() | run.state.to_json(), "trials": trials}
    return json.dumps(json_document(document), indent=1, allow_nan=False) + "\n"


CSV: Final = Format("csv", "a CSV table", write=to_csv)
PARQUET: Final = Format("parquet", "a Parquet table", write=to_parquet)
JSON: Final = Format("json", "a run as JSON", write=to_json)
