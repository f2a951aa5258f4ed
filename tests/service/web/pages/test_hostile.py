"""Names, labels and texts of the platform are hostile: escaped in pages, defused in tables, and links find them."""

from __future__ import annotations

import html
from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import parse_qsl, urljoin, urlsplit

import pytest

from hitl.service.web.templates import named, path
from tests.service.web.served import Crowd, Served, served_crowd, serving

SCRIPT = "<script>alert('x')</script>"
NAMES = (
    SCRIPT,
    "\"><img src=x onerror='alert(1)'>",
    "=cmd|' /C calc'!A0",
    "@SUM(1+1)*cmd",
    "\u202egnp.exe",  # right to left
    "../../etc/passwd",
    "..",
    ".",
    "~..",
    "a/b",
    "//evil.example/x",
    "100%",
    "%2e%2e",
    "a?b#c&d=e+f",
    "a b",
    "null",
    "NaN",
    "None",
    "{{ 7 * 7 }}",
    "${7*7}",
    "line\nbreak",
    "end\n",
    "👩‍👩‍👧‍👦 emoji",
    "عربي",
    ("long " * 60).strip(),
)
OF = {"name": "p", "labels": ("<b>cat</b>", "=dog/..%20?&")}


class Links(HTMLParser):
    """What a browser would see: tags, attributes, text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        self.text += "" if self._inside == "script" else data

    def of(self, *names: str) -> list[str]:
        return [value for name, value in self.attributes if name in names]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Each name is an item, an annotator and a text."""
    cat, dog = OF["labels"]
    rows = [
        (item, who, cat if (n + (k % 3 == 0 and n % 2)) % 2 else dog)
        for n, item in enumerate(NAMES)
        for k, who in enumerate(NAMES)
        if (n + k) % 3
    ]
    texts = {item: f"{item} of {SCRIPT} {'x' * 10_000 if n == 0 else ''}" for n, item in enumerate(NAMES)}
    crowd = Crowd(rows, texts, {}, {"<u>net": {NAMES[0]: {cat: 0.9, dog: 0.1}}}, NAMES[:4])
    with serving(served_crowd(tmp_path_factory.mktemp("hostile") / "p", crowd)) as found:
        yield found


def pages_of(name: str) -> list[str]:
    return [f"/projects/p/items/{path(name)}", f"/projects/p/annotators/{path(name)}"]


PARTS = ("", "/items?size=100", "/annotators?size=100", "/models", "/plan", "/runs", "/rework", "/views", "/runs/1")
ALL = ["/", *(f"/projects/p{part}" for part in PARTS)]


@pytest.mark.parametrize("address", [*ALL, *(page for name in NAMES for page in pages_of(name))])
def test_nothing_of_theirs_is_markup(hostile: Served, address: str) -> None:
    page = hostile.html(address)
    seen = Links(page)
    assert page.count("<script") == seen.tags.count("script")
    assert "img" not in seen.tags
    assert not [name for name, _ in seen.attributes if name.startswith("on")]
    assert "<script>" not in page, "all of ours have attributes"
    assert "<b>cat" not in page
    assert "<u>" not in page


def test_the_names_are_shown_as_they_are(hostile: Served) -> None:
    for part in ("items", "annotators"):
        text = Links(hostile.html(f"/projects/p/{part}?size=100")).text
        rows = hostile.json(f"/projects/p/{part}?size=100")["rows"]
        assert {row[part[:-1]] for row in rows} == set(NAMES)
        for name in NAMES:
            assert " ".join(name.split())[:200] in " ".join(text.split())


def test_what_is_sent_back_is_escaped_and_leads_to_its_item(hostile: Served) -> None:
    for name in NAMES:
        given = {"item": name, "annotator": name, "note": f"{name} {SCRIPT}"}
        assert hostile.client.post("/projects/p/rework", data=given).status_code == 201
    page = hostile.html("/projects/p/rework")
    assert "<script>" not in page
    assert page.count("<script") == Links(page).tags.count("script")
    rows = hostile.json("/projects/p/rework")["rows"]
    assert [row["item"] for row in rows] == list(reversed(NAMES))
    links = [link for link in Links(page).of("href") if "/items/" in link]
    assert [hostile.json(urljoin("http://testserver/projects/p/rework", link))["item"]["item"] for link in links] == [
        row["item"] for row in rows
    ]


@pytest.mark.parametrize("part", ["items", "annotators"])
def test_links_lead_where_they_say(hostile: Served, part: str) -> None:
    """As a browser resolves them: dots in an address go up a folder."""
    address = f"http://testserver/projects/p/{part}?size=100"
    rows = [row[part[:-1]] for row in hostile.json(f"/projects/p/{part}?size=100")["rows"]]
    links = [link for link in Links(hostile.html(f"/projects/p/{part}?size=100")).of("href") if f"/{part}/" in link]
    hrefs = list(dict.fromkeys(link.partition("#")[0] for link in links))
    assert len(hrefs) == len(rows)
    for name, href in zip(rows, hrefs, strict=True):
        whole = urljoin(address, href)
        assert urlsplit(whole).netloc == "testserver"
        assert hostile.json(whole)[part[:-1]][part[:-1]] == name


@pytest.mark.parametrize("name", NAMES)
def test_a_page_refreshes_itself(hostile: Served, name: str) -> None:
    """The address that the page asks for its own news is that of the page, and so are those for programs."""
    for page in pages_of(name):
        seen = Links(hostile.html(page))
        (own,) = seen.of("hx-get")
        assert urlsplit(own).path == page
        assert dict(parse_qsl(urlsplit(own).query)) == {"question": "label"}
        again = [link for link in seen.of("href") if "format=" in link]
        assert [urlsplit(link).path for link in again] == [page, page]
        assert not any(link.startswith(("//", "http")) for link in seen.of("href", "src", "hx-get", "action"))


def test_filters_take_every_name(hostile: Served) -> None:
    cat, dog = OF["labels"]
    for n, who in enumerate(NAMES):
        for said in (cat, dog, ""):
            found = hostile.json("/projects/p/items", annotator=who, said=said, size=1000)["found"]
            rows = [
                (i, k)
                for i in range(len(NAMES))
                for k in [n]
                if (i + k) % 3 and (not said or (cat if (i + (k % 3 == 0 and i % 2)) % 2 else dog) == said)
            ]
            assert found == len(rows), (who, said)
    assert hostile.json("/projects/p/items", label=cat)["found"] > 0


@pytest.mark.parametrize("address", ALL[1:])
def test_no_cell_of_a_table_is_a_formula(hostile: Served, address: str) -> None:
    for row in hostile.csv(address):
        for value in [*row, *row.values()]:
            assert not value.startswith(("=", "@", "+", "\t")), value
    assert any(value.startswith("'=") for row in hostile.csv("/projects/p/items?size=100") for value in row.values())


def test_a_name_that_is_not_there_is_not_found_and_is_escaped(hostile: Served) -> None:
    for part in ("items", "annotators"):
        answer = hostile.client.get(f"/projects/p/{part}/{path('<u>nobody</u>')}", headers={"Accept": "text/html"})
        assert answer.status_code == 404
        assert "<u>" not in answer.text
        assert "nobody" in html.unescape(answer.text)


@pytest.mark.parametrize("name", [*NAMES, "~.", "~~..", "...", "~", ""])
def test_a_part_of_an_address_is_read_as_it_was_written(name: str) -> None:
    from urllib.parse import unquote

    written = path(name)
    assert named(unquote(written)) == name
    assert "/" not in written
    assert written not in (".", "..", "%2e", "%2e%2e")
