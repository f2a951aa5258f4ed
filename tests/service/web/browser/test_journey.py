"""A lead at work, in a browser: log in, watch a label arrive, follow an error to its items, approve a plan, log out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.scheduled import until
from tests.service.web.browser.seen import START, browser, crowd, logged_in, needs_chromium, site, watched
from tests.service.web.served import run
from tests.service.web.test_live import post

pytestmark = needs_chromium

BELIEF = "main .meterbox >> nth=0"


@pytest.mark.journey
def test_a_lead_at_work(tmp_path: Path) -> None:
    config = crowd().written(tmp_path / "pets")
    run(config)
    output = config.parent / "labels" / "hitl-output"
    with site({"pets": config}, live=True) as where, browser() as chromium:
        page = watched(chromium.new_page(), where)
        page.goto(f"{where.address}/projects/pets/items?show=contested")
        assert page.url == f"{where.address}/login?next=%2Fprojects%2Fpets%2Fitems%3Fshow%3Dcontested"
        logged_in(page, where)
        arrives(page, where, config)
        error_to_items(page, where)
        plan_and_approve(page, where, output)
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url(f"{where.address}/login")
        page.goto(f"{where.address}/projects/pets")
        assert "/login?next=" in page.url
        assert where.troubles == []


def arrives(page: Any, where: Any, config: Path) -> None:
    """A label comes from the platform, and the item's belief changes without a reload."""
    page.goto(f"{where.address}/projects/pets/items?show=contested")
    page.locator("a.item").first.click()
    page.wait_for_load_state()
    item = page.locator("h1").inner_text()
    page.evaluate("window.stays = true")
    page.get_by_label("Note").fill("the ears")
    until(lambda: page.locator("#live-state").text_content() == "live")
    before = page.locator(BELIEF).get_attribute("aria-label")
    rows = page.locator("main table").nth(1).locator("tbody tr").count()
    with (config.parent / "labels" / "annotations.csv").open("a") as file:
        file.writelines(f"{item},newcomer-{n},neither,{START + 80_000 + n}\n" for n in range(4))
    port = int(where.address.rpartition(":")[2])
    assert post(port, "pets", secret="the secret of webhooks") == (200, {"queued": True})
    until(lambda: page.locator(BELIEF).get_attribute("aria-label") != before)
    until(lambda: page.locator("main table").nth(1).locator("tbody tr").count() == rows + 4)
    assert page.evaluate("window.stays"), "the page was loaded again"
    assert page.get_by_label("Note").input_value() == "the ears", "what somebody types stays"


def error_to_items(page: Any, where: Any) -> None:
    """From the annotators to one of them, and from a cell of what they confuse to the items behind it."""
    page.get_by_role("link", name="Annotators").click()
    page.get_by_role("link", name="person-7", exact=True).click()
    cells = page.locator("table.confusion td.cell a")
    counts = [int(cells.nth(n).get_attribute("title").split()[0]) for n in range(cells.count())]
    assert len(counts) == 9
    wrong = max((n for n in range(9) if n % 4), key=lambda n: counts[n])
    cells.nth(wrong).click()
    page.wait_for_url("**/items?**")
    assert page.get_by_text(f"{counts[wrong]} items.").count() or page.get_by_text("1 item.").count()
    assert page.locator("a.item").count() == counts[wrong] >= 1
    page.locator("a.item").first.click()
    assert page.get_by_role("link", name="person-7", exact=True).is_visible()


def plan_and_approve(page: Any, where: Any, output: Path) -> None:
    """Make a plan, look at it, send it: the tables of the project follow."""
    page.get_by_role("link", name="Plan", exact=True).click()
    before = {path: path.read_bytes() for path in output.rglob("*.csv")}
    page.get_by_role("button", name="Make a plan").click()
    page.wait_for_url("**/plan")
    until(lambda: where.projects["pets"].work is not None and where.projects["pets"].work.ended is not None)
    assert not where.projects["pets"].work.failed, where.projects["pets"].work.said
    assert {path: path.read_bytes() for path in output.rglob("*.csv")} == before, (
        "nothing is sent before it is approved"
    )
    approve = page.get_by_role("button", name="Approve and send")
    approve.wait_for(timeout=30_000)
    page.on("dialog", lambda dialog: dialog.accept())
    approve.click()
    page.wait_for_url("**/plan")
    until(lambda: where.projects["pets"].work.what == "push" and where.projects["pets"].work.ended is not None)
    assert not where.projects["pets"].work.failed, where.projects["pets"].work.said
    after = {path: path.read_bytes() for path in output.rglob("*.csv")}
    assert after != before
    page.get_by_text("The platform is up to date with the plan.").wait_for(timeout=30_000)


@pytest.mark.journey
def test_forms_work_without_scripts(tmp_path: Path) -> None:
    config = crowd(20).written(tmp_path / "pets")
    run(config)
    with site({"pets": config}) as where, browser() as chromium:
        page = watched(chromium.new_context(java_script_enabled=False).new_page(), where)
        logged_in(page, where)
        page.goto(f"{where.address}/projects/pets/items")
        page.get_by_label("Show").select_option("contested")
        page.get_by_role("button", name="Show").click()
        assert "show=contested" in page.url
        page.goto(f"{where.address}/projects/pets/plan")
        page.get_by_role("button", name="Make a plan").click()
        page.wait_for_url("**/plan")
        until(lambda: where.projects["pets"].work is not None and where.projects["pets"].work.ended is not None)
        assert not where.projects["pets"].work.failed
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url(f"{where.address}/login")
        assert where.troubles == []
