"""Charts as files: PNG, SVG, PDF, and HTML that opens offline."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any, Final

from mptune.backends.binary_cache import BinaryCache
from mptune.errors import PlotError
from mptune.paths import write_whole

__all__ = ["SUFFIXES", "check_path", "in_script", "save", "vega"]

SUFFIXES: Final = (".png", ".pdf", ".svg", ".html")
_PNG_DPI: Final = 300
_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ margin: 1em }}
#chart {{ width: 100%; max-width: 900px }}
#chart svg {{ width: 100%; height: auto }}
</style>
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
    """Return the path of a chart.

    Raises:
        PlotError: its suffix is none of :data:`SUFFIXES`, or there is no such folder.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        found = f"not {path.suffix}" if path.suffix else "and this name has none"
        raise PlotError(f"cannot write {path}: a plot is written as {', '.join(SUFFIXES)} by its suffix, {found}")
    if path.is_dir():
        raise PlotError(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise PlotError(f"cannot write {path}: there is no folder {path.parent}")
    return path


def save(chart: Any, path: str | Path) -> Path:
    """Write a chart of :func:`mptune.plot` as PNG, PDF, SVG or HTML; a file that is there is replaced.

    The same chart gives the same bytes with the same version of vl-convert-python.

    Raises:
        PlotError: the suffix is another one, or the file cannot be written.
    """
    path = check_path(path)
    suffix = path.suffix.lower()
    specification = chart.to_dict(validate=False)
    if suffix == ".html":
        page = _PAGE.format(title=html.escape(path.stem), vega=vega(), specification=in_script(specification))
        drawn = page.encode("utf-8", "backslashreplace")
    else:
        drawn = _drawn(specification, suffix)
    try:
        write_whole(path, drawn)
    except OSError as error:
        raise PlotError(f"cannot write {path}: {error.strerror or error}") from error
    return path


def _converter() -> Any:
    try:
        import vl_convert
    except ImportError:
        raise PlotError('charts need vl-convert-python: pip install "mptune[plots]"') from None
    return vl_convert


def _drawn(specification: dict[str, Any], suffix: str) -> bytes:
    vl_convert = _converter()
    if suffix == ".svg":
        return str(vl_convert.vegalite_to_svg(specification)).encode()
    convert = vl_convert.vegalite_to_pdf if suffix == ".pdf" else vl_convert.vegalite_to_png
    return bytes(convert(specification, **({"ppi": _PNG_DPI} if suffix == ".png" else {})))


def in_script(document: Any) -> str:
    """Return JSON that cannot end the script element it stands in: ASCII, without ``<``, ``>`` and ``&``."""
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def vega() -> str:
    """Return Vega, Vega-Lite and vega-embed as one script.

    Putting it together takes seconds, so it is kept in mptune's cache.
    """
    vl_convert = _converter()
    cache, key = BinaryCache(), BinaryCache.key(("vega", vl_convert.__version__))
    kept = cache.get(key)
    if kept is not None:
        return kept.decode()
    script: str = vl_convert.javascript_bundle().replace("</script", "<\\/script")
    cache.put(key, script.encode())
    return script
