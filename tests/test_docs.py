"""The examples in the documentation run and print what they say."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [page for page in sorted(DOCS.glob("*.md")) if ">>>" in page.read_text()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples(page: Path) -> None:
    fences = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    test = doctest.DocTestParser().get_doctest("\n".join(fences), {}, page.name, str(page), 0)
    assert test.examples
    said: list[str] = []
    failures = doctest.DocTestRunner().run(test, out=said.append).failed
    assert not failures, "".join(said)
