"""The documentation site: `sphinx-build -W docs site`, as CONTRIBUTING.md says."""

import pathlib
import sys

import daskgrad

sys.path.append(str(pathlib.Path(__file__).parent))

project = "daskgrad"
author = copyright = "The daskgrad developers"
release = version = daskgrad.__version__

extensions = [
    "executed",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
numpydoc_show_class_members = False
autosummary_generate = True
templates_path = ["_templates"]
autosummary_context = {  # members of public classes that other modules of the package use
    "internal": [
        *("__init__", "get_metadata_routing"),
        *("argument", "is_first_order", "kind", "pullback", "push", "rules", "run"),  # custom_vjp
        *("are_tuples", "array_valued", "cut_for", "holdings", "is_on", "is_remote"),  # Shards
        *("plan", "references", "restore", "slice_size", "starts"),
        *("arrays", "expand", "is_asked", "view", "with_values", "layout"),  # Rows, Grid
        *("counts_steps", "rule", "slots"),  # optimisers
    ]
}
executed_pages = ["tutorial"]
autodoc_typehints = "none"  # docstrings say what arguments are
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_selector = "div:not(.output) > div.highlight > pre"

html_theme = "pydata_sphinx_theme"
html_title = "daskgrad"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "navbar_align": "left",
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": [], "start": [], "gallery": []}
