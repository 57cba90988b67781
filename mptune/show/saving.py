"""Writing of charts: PNG, SVG, PDF, and HTML that opens offline."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any, Final

import vl_convert

from mptune.backends.binary_cache import BinaryCache
from mptune.errors import PlotError
from mptune.paths import write_whole

SUFFIXES: Final = (".png", ".pdf", ".svg", ".html")
_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>#chart {{ width: 100%; max-width: 900px }} #chart svg {{ width: 100%; height: auto }}</style>
</head>
<body>
<div id="chart"></div>
<script>{vega}</script>
<script type="application/json" id="specification">{specification}</script>
<script>
vegaEmbed("#chart", JSON.parse(document.getElementById("specification").textContent), {{ renderer: "svg", ast: true }});
</script>
</body>
</html>
"""


def check_path(path: str | Path) -> Path:
    """Return the path of a chart; raise PlotError for an unknown suffix or a missing folder."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise PlotError(f"cannot write {path}: expected the suffix {', '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise PlotError(f"cannot write {path}: there is no folder {path.parent}")
    return path


def save(chart: Any, path: str | Path) -> Path:
    """Write a chart of :func:`mptune.plot` as PNG, PDF, SVG or HTML, replacing an existing file.

    Equal charts give equal bytes with the same version of vl-convert-python.
    """
    path = check_path(path)
    kind = path.suffix.lower().removeprefix(".")
    specification = chart.to_dict(validate=False)
    drawn: str | bytes
    if kind == "html":
        drawn = _PAGE.format(title=html.escape(path.stem), vega=vega(), specification=in_script(specification))
    else:
        resolution = {"ppi": 300} if kind == "png" else {}
        drawn = getattr(vl_convert, f"vegalite_to_{kind}")(specification, **resolution)
    try:
        write_whole(path, drawn.encode("utf-8", "backslashreplace") if isinstance(drawn, str) else drawn)
    except OSError as error:
        raise PlotError(f"cannot write {path}: {error.strerror or error}") from error
    return path


def in_script(document: Any) -> str:
    """Return JSON for a script element: ASCII, with ``<``, ``>`` and ``&`` escaped."""
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def vega() -> str:
    """Return Vega, Vega-Lite and vega-embed as one script, cached because bundling takes seconds."""
    cache, key = BinaryCache(), BinaryCache.key(("vega", vl_convert.__version__))
    kept = cache.get(key)
    if kept is not None:
        return kept.decode()
    script: str = vl_convert.javascript_bundle().replace("</script", "<\\/script")
    cache.put(key, script.encode())
    return script
