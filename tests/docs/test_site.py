"""The site of the documentation builds without a warning, its search finds the field's words, and every link holds."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sphinx.search.en import SearchEnglish

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr  # kernels of notebooks log to both
    return folder


@pytest.fixture(scope="module")
def index(site: Path) -> dict[str, dict[str, set[str]]]:
    """Stem of a word -> pages that have it, in the text ("terms") and in headings ("titleterms")."""
    raw = json.loads((site / "searchindex.js").read_text().removeprefix("Search.setIndex(").removesuffix(")"))

    def names(pages: int | list[int]) -> set[str]:
        return {raw["docnames"][page] for page in ([pages] if isinstance(pages, int) else pages)}

    return {part: {stem: names(pages) for stem, pages in raw[part].items()} for part in ("terms", "titleterms")}


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("ground truth", "howto/ground-truth"),
        ("gold", "howto/ground-truth"),
        ("honeypot", "howto/ground-truth"),
        ("adjudication", "howto/ground-truth"),
        ("inter-annotator agreement", "howto/annotators"),
        ("majority vote", "howto/choose-a-method"),
        ("active learning", "howto/choose-questions"),
        ("confidence", "howto/confidence"),
        ("certificate", "howto/certify"),
        ("language model", "howto/language-models"),
        ("default method", "methods/default"),
        ("columns", "reference/tables"),
        ("blind_share", "reference/settings"),
    ],
)
def test_the_search_finds_the_words_of_the_field(index: dict[str, dict[str, set[str]]], words: str, page: str) -> None:
    """As the page's own script searches: every word has to be on a page, in its text or a heading."""
    stemmer = SearchEnglish({})
    stems = [stemmer.stem(word.lower()) for word in re.findall(r"\w+", words)]
    found = [index["terms"].get(stem, set()) | index["titleterms"].get(stem, set()) for stem in stems]
    assert page in set.intersection(*found)


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "docs/notebooks").glob("*.md")))
def test_a_notebook_is_executed_shows_pictures_and_can_be_downloaded(site: Path, name: str) -> None:
    page = (site / "notebooks" / f"{name}.html").read_text()
    assert 0 < page.count('class="cell_input') <= 15
    assert re.search(r'class="cell_output.*?<img[^>]* src="\.\./_images/', page, re.DOTALL)
    (download,) = re.findall(r'href="\.\./(_downloads/[^"]*\.ipynb)"', page)
    cells = json.loads((site / download).read_text())["cells"]
    assert all(cell["outputs"] or not cell["source"] for cell in cells if cell["cell_type"] == "code")


def test_every_page_can_be_reached_and_every_address_of_a_page_exists(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text()
        for target, anchor in re.findall(r'href="(?!https?:|mailto:|//)([^"#?]*)(?:#([^"]*))?"', text):
            aim = path if not target else (path.parent / target)
            assert aim.exists(), f"{path.relative_to(site)}: {target}"
            if anchor and aim.suffix == ".html":
                assert f'id="{anchor}"' in aim.read_text(), f"{path.relative_to(site)}: {target}#{anchor}"
