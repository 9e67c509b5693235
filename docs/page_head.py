"""Sphinx extension: the description and preview of each page, and the keys of the start page."""

from __future__ import annotations

import os
from html import escape
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

PREVIEW = "_static/preview.png"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension. Sphinx calls this function."""
    app.connect("html-page-context", _add_head)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _add_head(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Add tags for search engines and for previews of shared links to a page's head.

    Previews need absolute addresses, so `SITE_URL` is the address of the published site.
    """
    if doctree is None:
        return
    first = next(iter(doctree.findall(nodes.paragraph)), None)
    text = " ".join(first.astext().split()) if first else app.config.project
    preview = f"{os.environ['SITE_URL'].rstrip('/')}/{PREVIEW}" if "SITE_URL" in os.environ else ""
    title = f"{context['title']} | {app.config.project}"
    tags = {
        "og:type": "article",
        "og:title": title,
        "og:description": text,
        "og:image": preview or context["pathto"](PREVIEW, 1),
    }
    context["metatags"] += f'<meta name="description" content="{escape(text)}">' + "".join(
        f'<meta property="{name}" content="{escape(value)}">' for name, value in tags.items()
    )
    if page == app.config.root_doc:
        app.add_js_file("landing.js")
