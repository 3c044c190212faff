"""The documentation site: `sphinx-build -W docs site`, as CONTRIBUTING.md says."""

import html
import importlib
import inspect
import logging
import pathlib
import re
import sys
import textwrap
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

import daskgrad

sys.path.append(str(pathlib.Path(__file__).parent))

project = "daskgrad"
author = copyright = "The daskgrad developers"
release = version = daskgrad.__version__

extensions = [
    "executed",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_codeautolink",
    "sphinx_copybutton",
    "sphinx_design",
]
myst_enable_extensions = ["colon_fence", "substitution"]
myst_heading_anchors = 3
myst_substitutions = {"version": version}
templates_path = ["_templates"]


def names_of(module: str) -> tuple[list[str], list[str]]:
    """What a module of ``daskgrad.scipy`` has of SciPy's: documented here, and by SciPy alone."""
    ours, scipys = [importlib.import_module(f"{room}.{module}") for room in PAIR]
    both = {name: entry for name, entry in vars(ours).items() if hasattr(scipys, name)}
    names = [name for name in both if inspect.isfunction(both[name]) or inspect.isclass(both[name])]
    theirs = [name for name in names if both[name].__doc__ == getattr(scipys, name).__doc__]
    return [name for name in names if name not in theirs], theirs


PAIR = ("daskgrad.scipy", "scipy")  # rooms of the same modules
MODULES = "integrate interpolate linalg optimize signal sparse sparse.linalg special stats"
autosummary_context = {
    "scipy": {f"daskgrad.scipy.{module}": names_of(module) for module in MODULES.split()},
    "internal": [  # members of public classes that other modules of the package use
        *("__init__", "get_metadata_routing"),
        *("argument", "is_first_order", "kind", "pullback", "push", "rules", "run"),  # custom_vjp
        *("are_tuples", "array_valued", "cut_for", "holdings", "is_on", "is_remote"),  # Shards
        *("plan", "references", "restore", "slice_size", "starts"),
        *("arrays", "expand", "is_asked", "view", "with_values", "layout"),  # Rows, Grid
        *("counts_steps", "rule", "slots"),  # optimisers
    ],
}
python_maximum_signature_line_length = 88  # a longer one has a line for each parameter
autodoc_typehints_format = "short"
executed_pages = ["tutorial"]
add_module_names = False
napoleon_google_docstring = False
napoleon_use_rtype = False
codeautolink_concat_default = True  # a page is one program
codeautolink_global_preface = "import numpy as np\nimport daskgrad as dg"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_selector = "div:not(.output) > div.highlight > pre"

intersphinx_mapping = {
    "python": ("https://docs.python.org/3", None),
    "numpy": ("https://numpy.org/doc/stable", None),
    "scipy": ("https://docs.scipy.org/doc/scipy", None),
    "dask": ("https://docs.dask.org/en/stable", None),
    "distributed": ("https://distributed.dask.org/en/stable", None),
}
intersphinx_timeout = 5
# without a network the site is built all the same; names of other libraries are then no links
logging.getLogger("sphinx.sphinx.ext.intersphinx").addFilter(
    lambda record: "failed to reach" not in str(record.msg)
)

html_theme = "pydata_sphinx_theme"
html_title = "daskgrad"
html_favicon = html_logo = "_static/icon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {"text": "daskgrad"},
    "navbar_align": "left",
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": ["links"],
    "secondary_sidebar_items": {"*": ["page-toc"], "*/*": ["page-toc"], "api/generated/*": []},
}
html_sidebars = {"index": [], "start": [], "gallery": []}


NAME = re.compile(r"(?:(dg|daskgrad|np|numpy|scipy|dask|distributed)\.)?([a-zA-Z][\w.]*)(\(.*\))?")
LIBRARIES = {"dg": "daskgrad", "np": "numpy", None: "daskgrad"}
LINKS = (nodes.title, nodes.reference, addnodes.pending_xref, addnodes.download_reference)


class NamesAreLinks(SphinxTransform):
    """`dg.map_sum(...)` and `np.sum` in a text are links; in docstrings `map_sum`, too."""

    default_priority = 500

    def apply(self, **kwargs: Any) -> None:
        names = [*map(self.document.findall, (addnodes.desc_name, addnodes.desc_sig_name))]
        own = {node.astext() for each in names for node in each}  # of this page's functions
        public = set(daskgrad.__all__) - own if self.env.docname.startswith("api/") else ()
        for literal in list(self.document.findall(nodes.literal)):
            match = NAME.fullmatch(literal.astext())
            around = (literal.parent, literal.parent.parent)
            if not match or any(isinstance(node, LINKS) for node in around):
                continue
            library, name, call = match.groups()
            if library or (not call and name.split(".")[0] in public):
                target = f"{LIBRARIES.get(library, library)}.{name}"
                link = addnodes.pending_xref("", refdomain="py", reftype="obj", reftarget=target)
                link["refdoc"], link["refwarn"] = self.env.docname, False
                literal.replace_self(link)
                link += literal


def describe(app: Any, page: str, template: str, context: dict, document: Any) -> None:
    """A page's first paragraph is its description, for search engines."""
    if document and (paragraph := next(document.findall(nodes.paragraph), None)):
        text = textwrap.shorten(paragraph.astext(), 200, placeholder=" …")
        context["metatags"] += f'<meta name="description" content="{html.escape(text)}">'


def setup(app: Any) -> None:
    app.connect("html-page-context", describe)
    app.add_transform(NamesAreLinks)
