"""The gallery of the documentation site has every example."""

from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_example_is_in_the_gallery():
    gallery = (ROOT / "docs" / "gallery.md").read_text()
    examples = sorted((ROOT / "examples").glob("[a-z]*.py"))
    assert len(examples) > 5
    assert [path.name for path in examples if f"`examples/{path.name}`" not in gallery] == []
