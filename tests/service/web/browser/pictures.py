"""Pictures of the pages: `python -m tests.service.web.browser.pictures FOLDER [--all]`.

Those of the documentation are small: palette PNG of 1,000 pixels. `--all` takes every page, light and dark, on a phone
too.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import Any

from hitl.service.web.templates import path
from tests.service.web.browser.seen import browser, logged_in, projects_to_see, site, watched

WIDE = path("a project whose name takes much room on a phone")
MAIN = {
    "overview": "/projects/pets",
    "items": "/projects/pets/items?show=contested",
    "item": "/projects/pets/items/photo-012",
    "annotator": "/projects/pets/annotators/person-1",
}
MORE = {
    "projects": "/",
    "annotators": "/projects/pets/annotators",
    "team": "/projects/pets/team",
    "models": "/projects/pets/models",
    "plan": "/projects/pets/plan",
    "runs": "/projects/pets/runs",
    "rework": "/projects/pets/rework",
    "views": "/projects/pets/views",
    "cycle": "/projects/pets/runs/1",
    "deliveries": "/projects/pets/deliveries",
    "none-found": "/projects/pets/items?q=nothing-like-it",
    "unlabeled": "/projects/pets/items/photo-148",
    "missing": "/projects/pets/items/no-such-item",
    **{
        f"new{part.replace('/', '-')}": f"/projects/new{part}"
        for part in ("", "/items", "/annotators", "/team", "/models", "/plan", "/runs")
    },
    **{
        f"wide{part.replace('/', '-')}": f"/projects/{WIDE}{part}"
        for part in ("", "/items", "/annotators", "/plan", "/runs")
    },
    "account": "/account",
    "users": "/admin/users",
    "tokens": "/admin/tokens",
}
SIZES = {"desktop": (1000, 760, "light")}
ALL = {"desktop": (1280, 1500, "light"), "phone": (390, 1500, "dark")}
STUDIED = "/projects/pets/team", "/projects/pets/models"
"""Pages of which a part comes later."""

LARGEST = 60_000
"""Bytes of a picture."""


def take(folder: Path, pages: dict[str, str], sizes: dict[str, tuple[int, int, str]], small: bool) -> None:
    """A picture of each page in each size."""
    with tempfile.TemporaryDirectory() as made, site(projects_to_see(Path(made)), live=True) as where:
        with browser() as chromium:
            page = logged_in(watched(chromium.new_page(), where), where)
            page.goto(f"{where.address}/projects/{WIDE}/items?sort=labels")
            first = {"wide-item": page.locator("a.item").first.get_attribute("href")}
            page.goto(f"{where.address}/projects/{WIDE}/annotators")
            first["wide-annotator"] = page.locator("main tbody td a").first.get_attribute("href")
            for name, address in (pages if small else {**pages, **first}).items():
                for size, (width, height, scheme) in sizes.items():
                    page.set_viewport_size({"width": width, "height": height})
                    page.emulate_media(color_scheme=scheme)
                    page.goto(where.address + address)
                    if address in STUDIED:
                        page.wait_for_selector("[data-study]", timeout=60_000)
                    page.wait_for_timeout(400)
                    save(folder / f"serve-{name}-{size}.png", page, small)
        print("\n".join(sorted(set(where.troubles))))


def save(file: Path, page: Any, small: bool) -> None:
    """The picture, in as many colours as fit."""
    from PIL import Image

    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    for colours in (128, 64, 32, 16):
        shot.quantize(colours).save(file, optimize=True) if small else shot.save(file)
        if not small or file.stat().st_size <= LARGEST:
            return


if __name__ == "__main__":
    everything = "--all" in sys.argv
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    take(target, {**MAIN, **MORE} if everything else MAIN, ALL if everything else SIZES, not everything)
