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
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_class_signature = "mixed"
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


def _link_results(_: Any, __: str, source: list[str]) -> None:
    """Lead links to a report of a benchmark, which GitHub follows to its file, to the page that includes it."""
    source[0] = re.sub(r"\]\(\.\./benchmarks/results/(\w+)\.md", r"](results-\1.md", source[0])


def setup(app: Any) -> None:
    """Register the above."""
    app.connect("source-read", _link_results)
