"""How Sphinx builds these pages; `make docs` runs it with warnings as errors."""

import re
from typing import Any

from mptune import __version__

project = "mptune"
author = "the mptune developers"
copyright = "the mptune developers; Apache-2.0"
release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["tutorial/*"]

# Headings can be linked to as GitHub does it, where these files are read too.
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
# Types by the names the sources give them, not by what they stand for.
autodoc_type_aliases = {
    name: name for name in ("ArrayLike", "Constraint", "Flops", "Inputs", "Metric", "NDArray", "Value")
}
maximum_signature_line_length = 90
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_preprocess_types = False

html_theme = "furo"
html_title = f"mptune {release}"
html_show_sphinx = False
html_show_sourcelink = False
# Tables scroll on a narrow screen and keep their words whole on a wide one.
html_static_path = ["_static"]
html_css_files = ["tables.css"]


#: Files outside docs/ that GitHub follows a link to, and the pages that include them.
_INCLUDED = {
    r"\.\./benchmarks/results/(\w+)\.md": r"results-\1.md",
    r"\.\./templates/prelude/README\.md": "prelude.md",
}


def _link_pages(_: Any, __: str, source: list[str]) -> None:
    """Lead links to included files to the pages that include them."""
    for path, page in _INCLUDED.items():
        source[0] = re.sub(rf"\]\({path}", f"]({page}", source[0])


def _keep_colons(_: Any, what: str, __: str, ___: Any, ____: Any, lines: list[str]) -> None:
    """Put an empty comment before a property's docstring: of "text: more" Napoleon takes the text for a type."""
    if what in ("attribute", "property"):
        lines[:0] = ["..", ""]


def _readable(
    _: Any, __: str, ___: str, ____: Any, _____: Any, signature: str | None, returns: str | None
) -> tuple[str, str] | None:
    """Write aliases and made defaults of a signature as the source has them, so that Sphinx can parse it."""
    if not signature:
        return None
    plain, result = (re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text or "") for text in (signature, returns))
    return plain.replace("<factory>", "..."), result


def setup(app: Any) -> None:
    """Register the above."""
    app.connect("source-read", _link_pages)
    app.connect("autodoc-process-docstring", _keep_colons, priority=400)
    app.connect("autodoc-process-signature", _readable)
