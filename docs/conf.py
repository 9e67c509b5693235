"""The documentation site: Sphinx over the pages, the notebooks and the docstrings.

`make site` builds it; the source folder is the repository, since pages link to what lies beside.
"""

from importlib.metadata import version as installed

project = "Battlesnake, learned and served"
author = "the Battlesnake Gym contributors"
version = release = installed("battlesnake-gym")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "myst_nb",
]
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "notebooks/*.ipynb",
    "server/default_policy/README.md",
    "heuristics/evaluations/README.md",
    "*.md",
]
exclude_patterns = ["README.md", "docs/play", "docs/_gallery", "**/.ipynb_checkpoints"]

myst_enable_extensions = ["attrs_inline", "deflist"]
myst_heading_anchors = 4
# Pygments does not know that a shell command in a cell may go on after a backslash.
suppress_warnings = ["misc.highlighting_failure"]
# Notebooks are kept without outputs. The one that trains nothing runs when the site is built; the
# others are shown as they are.
nb_execution_mode = "auto"
nb_execution_excludepatterns = ["notebooks/[123467]_*.ipynb", "notebooks/procgen_*.ipynb"]
nb_execution_timeout = 1800
nb_execution_raise_on_error = True
# Where there is no kernel, a widget is the picture that it showed.
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]

autosummary_generate = True
autodoc_default_options = {
    "members": True,
    "undoc-members": True,
    "show-inheritance": True,
    "member-order": "bysource",
    "exclude-members": "metadata, registry",
}
autodoc_mock_imports = ["mxnet"]
autodoc_typehints = "signature"
default_role = "code"
python_display_all_members = True

html_theme = "furo"
html_title = project
html_copy_source = False
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["gallery.css"]
