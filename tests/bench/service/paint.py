"""When a browser first paints the pages of a large project, what it loads for that, and how much there is to lay out.

    python -m tests.bench.service.paint --items 1000000 --labels 10 --annotators 10000 --save

The project and the server of `pages`, and a headless Chromium on the same machine that has nothing kept of what it
loads. Each page is opened REPEATS times as on two devices:

desktop    1280 x 800, nothing slowed
phone      390 x 844, a processor that is 4 times slower, 1.6 Mbit/s and 150 ms to the server (Lighthouse's phone)

paint ms   first contentful paint: from the click to the first text; median and worst
kB         all that is loaded, with headers, as it is transferred
elements   of the page when everything has run
The bar: 1 s, of the median. What else the machine does is told by its load.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tests.bench import results
from tests.bench.service.pages import PAGES, main
from tests.scheduled import until
from tests.service.web.browser.seen import browser
from tests.service.web.processes import first_user, log_in, serving

REPEATS = 5

SEEN = {
    **{name: path for name, path in PAGES.items() if "JSON" not in name and name != "metrics"},
    "sent back": "/projects/p/rework",
    "account": "/account",
    "users": "/admin/users",
    "tokens": "/admin/tokens",
}
BAR = 1000.0
"""Milliseconds to the first paint."""
DEVICES: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1280, "height": 800}},
    "phone": {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 3, "is_mobile": True},
}
SLOWER, BITS, LATENCY = 4, 1.6e6, 150

PAINTED = """() => {
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  return document.readyState === "complete" && paint ? {
    paint: paint.startTime,
    bytes: [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
      .reduce((sum, each) => sum + each.transferSize, 0),
    elements: document.querySelectorAll("*").length } : null; }"""


def opened(chromium: Any, device: str, address: str, kept: Any) -> dict[str, float]:
    """What a browser that is logged in says of one page, loaded for the first time."""
    context = chromium.new_context(storage_state=kept, **DEVICES[device])
    page = context.new_page()
    if device == "phone":
        devtools = context.new_cdp_session(page)
        devtools.send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
        line = {"offline": False, "latency": LATENCY, "downloadThroughput": BITS / 8, "uploadThroughput": BITS / 8}
        devtools.send("Network.emulateNetworkConditions", line)
    page.goto(address, wait_until="load")
    found: dict[str, float] = until(lambda: page.evaluate(PAINTED))
    context.close()
    return found


def measure(folder: Path) -> tuple[list[str], dict[str, Any]]:
    """Milliseconds to the first paint of each page on each device, what it loads, and its elements."""
    figures: dict[str, dict[str, Any]] = {}
    with serving(folder, "serve", "--no-scheduler") as (address, said, _), browser() as chromium:
        with closing(log_in(address, said)) as client:
            _settled(client)
        context = chromium.new_context()
        page = context.new_page()
        page.goto(f"{address}/login")
        name, password = first_user(said)
        page.get_by_label("Name").fill(name)
        page.get_by_label("Password").fill(password)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(f"{address}/")
        kept = context.storage_state()
        context.close()
        for name, path in SEEN.items():
            figures[name] = {}
            for device in DEVICES:
                found = [opened(chromium, device, address + path, kept) for _ in range(REPEATS)]
                paints = [each["paint"] for each in found]
                figures[name] |= {device: float(np.median(paints)), f"{device}, worst": max(paints)}
                figures[name] |= {"kB": found[-1]["bytes"] / 1e3, "elements": found[-1]["elements"]}
    load = f"load of the machine: {os.getloadavg()[1]:.1f} on {os.cpu_count()} processors"
    bars = [
        results.at_most_each(
            f"first paint, ms, {device}:", {name: one[device] for name, one in figures.items()}, BAR, ".0f"
        )
        for device in DEVICES
    ]
    return ["milliseconds to the first paint", *results.table(figures, 0), "", load, *results.held(*bars)], figures


def _settled(client: httpx.Client) -> None:
    """Wait until the server has looked at the platform for the first time, which takes a processor of it."""
    for _ in range(600):
        if 'hitl_live_pulls_total{project="p"} 0.0' not in client.get("/metrics").text:
            return
        time.sleep(1.0)
    raise SystemExit("the server did not come to rest in ten minutes")


if __name__ == "__main__":
    main(__doc__, "paint", measure)
