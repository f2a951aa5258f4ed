"""Settings of Sphinx. `make docs` builds the site into docs/_build/html."""

import hitl

project = "hitl"
author = "the authors of hitl"
version = release = hitl.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"hitl {version}"
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}

myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4

# Docstrings are plain text with code in single backticks.
default_role = "code"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "set_fit_request, set_score_request, set_predict_request"}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
