"""Settings of Sphinx."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "aot backends"
author = "the aot backends contributors"
project_copyright = "2026, the aot backends contributors"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "from_code"]
html_theme = "furo"
html_title = project
exclude_patterns = ["_build", "_extensions", "requirements.txt"]
myst_heading_anchors = 3
nitpicky = False

# Docstrings write names in single backquotes.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_use_ivar = True
napoleon_use_rtype = False
python_use_unqualified_type_names = True
