"""Settings of Sphinx."""

from __future__ import annotations

project = "aot backends"
author = "the aot backends contributors"
project_copyright = "2026, the aot backends contributors"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = project
exclude_patterns = ["_build", "requirements.txt"]
myst_heading_anchors = 3
nitpicky = False
