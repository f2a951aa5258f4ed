"""Every page as on a phone and on a screen, light and dark: nothing sticks out, and axe finds nothing serious.

axe-core comes with the package axe-playwright-python; nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest

from hitl.service.web.templates import path
from tests.service.web.browser.seen import Site, browser, logged_in, needs_chromium, projects_to_see, site, watched

pytestmark = [needs_chromium, pytest.mark.journey]

WIDTHS = (360, 390, 768, 1280)
WIDE = path("a project whose name takes much room on a phone")
PARTS = ("", "/items", "/annotators", "/team", "/models", "/plan", "/runs", "/rework", "/deliveries", "/views")
PAGES = (
    "/",
    *(f"/projects/{project}{part}" for project in ("pets", "new", WIDE) for part in PARTS),
    "/projects/pets/items/photo-000",
    "/projects/pets/items/photo-003",
    "/projects/pets/items/photo-148",
    "/projects/pets/items?q=nothing-like-it",
    "/projects/pets/annotators/person-1",
    "/projects/pets/runs/1",
    "/projects/new/items/a",
    "/projects/new/annotators/ann",
    "WIDE ITEM",
    "WIDE ANNOTATOR",
    "/projects/pets/items/no-such-item",
    "/account",
    "/admin/users",
    "/admin/tokens",
)
RUN = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
  .filter((one) => ["serious", "critical"].includes(one.impact))
  .map((one) => `${one.id} (${one.impact}): ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200) + " " +
    (node.any[0] ? node.any[0].message : "")).join(" | ")}`)"""
OUT = """() => { const room = document.documentElement.clientWidth; return [document.documentElement.scrollWidth - room,
  [...document.querySelectorAll("body *")].filter((e) => !e.closest(".scroll, .hidden, .skip, svg")
    && e.getBoundingClientRect().right > room + 1).slice(0, 3).map((e) => e.outerHTML.slice(0, 160))] }"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Site]]:
    """A page of somebody who is logged in, and what it looks at."""
    with site(projects_to_see(tmp_path_factory.mktemp("looks")), live=True) as where, browser() as chromium:
        page = logged_in(watched(chromium.new_page(), where), where)
        yield page, where


def opened(page: Any, where: Site, address: str) -> None:
    """Go there; the two that are not named are the first that their tables link to."""
    if address.startswith("WIDE"):
        table = "items" if address == "WIDE ITEM" else "annotators"
        page.goto(f"{where.address}/projects/{WIDE}/{table}?sort=labels")
        address = page.locator("main tbody td:first-child a").first.get_attribute("href")
    page.goto(where.address + address)


@pytest.mark.parametrize("address", PAGES)
def test_nothing_sticks_out_and_axe_is_content(seen: tuple[Any, Site], address: str) -> None:
    page, where = seen
    page.set_viewport_size({"width": 1280, "height": 900})
    opened(page, where, address)
    look(page, WIDTHS)
    if "no-such" not in address:
        assert where.troubles == []
    where.troubles.clear()


TABBED = """() => { const e = document.activeElement, look = getComputedStyle(e);
  if (e === document.body) return null;
  return [e.outerHTML.slice(0, 120), look.outlineStyle !== "none" && parseFloat(look.outlineWidth) >= 1]; }"""
REACHED = """() => [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, summary")]
  .filter((e) => e.checkVisibility()).length"""


@pytest.mark.parametrize(
    "address", ["/projects/pets/items?size=5", "/projects/pets/annotators/person-1", "/admin/users"]
)
def test_the_keyboard_reaches_everything_and_shows_where_it_is(seen: tuple[Any, Site], address: str) -> None:
    page, where = seen
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(where.address + address)
    expected, reached = page.evaluate(REACHED), []
    for _ in range(expected):
        page.keyboard.press("Tab")
        focused = page.evaluate(TABBED)
        if focused is None:
            break
        reached.append(focused)
    assert "Skip to the content" in reached[0][0]
    assert len(reached) == expected
    assert [what for what, visible in reached if not visible] == []


def test_the_login(seen: tuple[Any, Site]) -> None:
    page, where = seen
    other = watched(page.context.browser.new_page(), where)
    other.goto(f"{where.address}/login")
    look(other, WIDTHS)
    other.get_by_label("Name").fill("ann")
    other.get_by_label("Password").fill("a wrong password")
    other.get_by_role("button", name="Log in").click()
    look(other, (390,))
    where.troubles.clear()  # the browser tells of the 401


def look(page: Any, widths: tuple[int, ...]) -> None:
    """Measure at each width, and have axe look at the narrow and the wide one, light and dark."""
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        over, found = page.evaluate(OUT)
        assert over <= 0, f"{page.url} at {width}: {over} px too wide: {found}"
        if width in (390, 1280):
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                assert page.evaluate(RUN) == [], f"{page.url} at {width}, {scheme}"
