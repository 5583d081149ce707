# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The site of these pages: `make docs` builds it. The Markdown is written for GitHub, too, and links as GitHub does."""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))
import public_interface  # noqa: E402

REPOSITORY = "https://github.com/accel-project/accel"
#: A Markdown link's target, relative.
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")

project = "accel"
author = "accel contributors"
project_copyright = "accel contributors"

extensions = ["myst_parser", "sphinx_copybutton", "sphinx_design"]
exclude_patterns = ["tests"]
myst_enable_extensions = ["colon_fence"]
# As deep as headings are, so that every anchor that GitHub makes is here, too.
myst_heading_anchors = 6
copybutton_exclude = ".linenos, .gp, .go"
# What a shell session shows in a block: its prompt is not copied, nor what the command prints.
copybutton_prompt_text = r"^\$ |>>> "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "accel"
html_theme_options = {
    "source_repository": REPOSITORY,
    "source_branch": "main",
    "source_directory": "docs/",
}
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["matrix.js"]

# Annotations name types as their module does: those of others are links only where intersphinx knows them.
nitpick_ignore_regex = [("py:.*", r"(?!accel_core\.).*")]

# Links into the references of others need the network: `sphinx-build -t online`, as in CI. Without it they are text.
if tags.has("online"):  # type: ignore[name-defined] # noqa: F821
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "torch": ("https://docs.pytorch.org/docs/stable", None),
        "deepspeed": ("https://deepspeed.readthedocs.io/en/latest", None),
    }


def link_into_repository(app: Sphinx, docname: str, content: list[str]) -> None:
    """Let links to files that are not pages here lead to the repository."""
    folder = posixpath.join("docs", posixpath.dirname(docname))

    def absolute(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found[0]))
        file = ROOT / path
        page = file.suffix in (".md", ".svg", ".png") and path.startswith("docs/")
        if page or not file.exists():
            return found[0]
        return f"{REPOSITORY}/{'tree' if file.is_dir() else 'blob'}/main/{path}"

    content[0] = _LINK.sub(absolute, content[0])


def add_reference(app: Sphinx, docname: str, content: list[str]) -> None:
    """Put the reference of the public modules into their pages."""
    content[0] = public_interface.insert(content[0])


def read_references_again(app: Sphinx, env: BuildEnvironment, *_: set[str]) -> list[str]:
    """Name the pages that are made from sources, which Sphinx does not see change."""
    return sorted(name for name in env.found_docs if name.startswith("api/"))


#: What the theme's HTML lacks for screen readers, and for who scrolls a wide block or table with the keyboard.
ACCESSIBLE = {
    'role="heading">': 'role="heading" aria-level="2">',
    "<pre>": '<pre tabindex="0">',
    '<div class="table-wrapper ': '<div tabindex="0" class="table-wrapper ',
}


def make_accessible(app: Sphinx, pagename: str, template: str, context: dict[str, Any], *_: Any) -> None:
    """Complete the HTML of the navigation and of the page."""
    for name in ("furo_navigation_tree", "body"):
        if name in context:
            text = str(context[name])
            for found, wanted in ACCESSIBLE.items():
                text = text.replace(found, wanted)
            context[name] = text


def setup(app: Sphinx) -> None:
    """Connect what this site does to Sphinx."""
    # After the theme, which makes the navigation.
    app.connect("html-page-context", make_accessible, priority=900)
    app.connect("source-read", link_into_repository)
    app.connect("source-read", add_reference)
    app.connect("env-get-outdated", read_references_again)
