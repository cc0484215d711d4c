"""How Sphinx makes the site (`make docs`): MyST for Markdown, MathML for formulas, nothing from other hosts."""

from importlib.metadata import version as installed

from docutils import nodes
from latex2mathml.converter import convert

project = "dpose"
author = "the dpose authors"
version = release = installed("dpose")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["examples"]
highlight_language = "none"  # most blocks are commands
html_theme = "furo"
html_title = "dpose"
html_math_renderer = "mathml"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_search_summary = False

# GitHub's anchors and its ```math, so that the same pages read well there
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath", "deflist"]
myst_fence_as_directive = ["math"]

default_role = "literal"  # docstrings are Markdown as far as names go
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_use_unqualified_type_names = True


def _inline(writer, node):
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _displayed(writer, node):
    # GitHub wants "aligned", latex2mathml knows the same as "align*"
    formula = convert(node.astext().replace("{aligned}", "{align*}"), display="block")
    writer.body.append(f'<div class="math">{formula}</div>')
    raise nodes.SkipNode


def setup(app):
    """MathML is what browsers show by themselves: no script, no fonts, and a screen reader reads it."""
    app.add_html_math_renderer("mathml", (_inline, None), (_displayed, None))
