"""Settings of Sphinx. `make docs` builds the site into docs/_build/html."""

import os
import sys

import hitl

project = "hitl"
author = "the authors of hitl"
version = release = hitl.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"hitl {version}"
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
html_static_path, html_css_files = ["_static"], ["site.css"]

# Notebooks call `hitl` of this environment, in a temporary folder. One that fails breaks the build.
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300
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
