"""The documentation site: `make docs`, or `sphinx-build -n -W docs docs/_build/html`."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
sys.path.insert(0, str(HERE.parent / "src"))
os.environ.setdefault("OMP_NUM_THREADS", "2")

import icofactor  # noqa: E402

project = "icofactor"
author = "The icofactor developers"
copyright = author
version = release = icofactor.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "command_pages",
]
templates_path = ["_templates"]
exclude_patterns = [
    "_build",
    "_ext",
    "examples",
    "tutorials/*.ipynb",
    "tutorials/*.py",
    "tutorials/*.zip",
]
nitpicky = True
# what the pages of this site inherit from, and cannot link to without a network
nitpick_ignore_regex = [
    ("py:class", r"(sklearn|pandas|numpy|scipy|nilearn|matplotlib)\..*|optional|default.*"),
    ("py:obj", r"icofactor\..*"),
]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"
smartquotes = False  # values such as "parts" are copied from these pages
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "tutorials",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "gallery_order.Order",
    "image_scrapers": ("matplotlib", "gallery_order.shown_figures"),
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "capture_repr": (),
    "show_memory": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "only_warn_on_example_error": False,
    "show_signature": False,
    "backreferences_dir": None,
    "doc_module": (),
    "plot_gallery": "True",
    "nested_sections": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "icofactor"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_show_sphinx = False
html_sidebars = {"start": [], "contributing": []}  # pages without subpages
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "secondary_sidebar_items": ["page-toc"],
    "navbar_end": ["theme-switcher"],
}


def _plain_names(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """`components_` in a sentence is a name, not a link to a target."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...", "..")):
            parts = line.split("`")
            parts[::2] = [re.sub(r"(?<=[a-z])_(?!\w)", r"\\_", part) for part in parts[::2]]
            lines[i] = "`".join(parts)


def _titles(app: Any, name: str, source: list[str]) -> None:
    """[people.md](people.md), which suits a repository, has the title of that page or section as its text here."""
    source[0] = re.sub(r"\[\w+\.md\]\(", "[](", source[0])


def setup(app: Any) -> None:
    app.connect("source-read", _titles)
    app.connect("autodoc-process-docstring", _plain_names, priority=900)  # after numpydoc
