"""Sphinx configuration of the documentation site.

`make site` builds the site from the pages, the notebooks and the docstrings. The source directory
is the root of the repository, because pages link to files outside `docs`.
"""

import sys
from importlib.metadata import version as installed
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring

sys.path.insert(0, str(Path(__file__).parent))  # the extensions in this folder

project = "Battlesnake, learned and served"
author = "the Battlesnake Gym contributors"
project_copyright = f"2026, {author}"
version = release = installed("battlesnake-gym")


extensions = ["sphinx.ext.autodoc", "myst_nb", "reference_pages", "page_head"]
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "notebooks/*.ipynb",
    "server/battlesnake_server/default_policy/README.md",
    "heuristics/battlesnake_heuristics/search/evaluations/README.md",
    "conformance/RULES.md",
    "conformance/LAYOUTS.md",
    "*.md",
]
exclude_patterns = [
    "README.md",
    "docs/play",
    "docs/_gallery",
    "docs/_reference/settings.md",
    "docs/_reference/environment.md",
    "docs/_reference/procgen.md",
    "docs/_reference/search-inputs.md",
    "**/.ipynb_checkpoints",
]

myst_enable_extensions = ["attrs_inline", "deflist"]
myst_heading_anchors = 5
# Pygments does not support shell commands with line continuations in cells.
suppress_warnings = ["misc.highlighting_failure"]
# `make notebooks` runs the notebooks; the site shows the stored outputs.
nb_execution_mode = "off"

autodoc_default_options = {
    "members": True,
    "undoc-members": True,
    "ignore-module-all": True,  # The pages of packages link to the definitions instead.
    "show-inheritance": True,
    "member-order": "bysource",
    "exclude-members": "metadata, registry",
}
autodoc_typehints = "signature"
autodoc_mock_imports = ["mxnet"]  # an optional package for Python 3.11 only
default_role = "code"
python_display_all_members = True

html_theme = "furo"
html_title = project
html_copy_source = False
html_use_index = html_domain_indices = False  # The index page would have a size of 800 kB.
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["gallery.css"]
html_favicon = "../server/battlesnake_server/static/icon.svg"
html_search_scorer = str(Path(__file__).parent / "search_scorer.js")


def setup(app: Sphinx) -> None:
    """Register the converter of docstrings. Sphinx calls this function."""
    app.connect("autodoc-process-docstring", _convert_google_sections)


def _convert_google_sections(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Convert Google-style sections of docstrings to Sphinx fields.

    Unlike the napoleon extension, this function ignores the docstrings of attributes and constants.
    Napoleon would read the text before their first colon as a type.
    """
    if what not in ("attribute", "data", "property"):
        # The field ``ivar`` does not describe an attribute a second time.
        config = Config(napoleon_use_ivar=True)
        lines[:] = GoogleDocstring(lines, config, what=what, name=name).lines()
