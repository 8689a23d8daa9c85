"""The guide, as it is written: what it shows is run, and must come out as it says."""

from __future__ import annotations

import doctest
from pathlib import Path

from conftest import ROOT


def test_the_guide_does_what_it_says(home: Path, runtime: str) -> None:
    text = (ROOT / "docs/python.md").read_text()
    # The fence of a block would be read as part of what is printed.
    plain = text.replace("```python\n", "").replace("```\n", "\n")
    examples = doctest.DocTestParser().get_doctest(plain, {}, "docs/python.md", "docs/python.md", 0)
    assert len(examples.examples) > 40
    said: list[str] = []
    outcome = doctest.DocTestRunner(verbose=False).run(examples, out=said.append)
    assert outcome.failed == 0, "".join(said)
