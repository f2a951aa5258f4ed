"""When a browser first paints the pages of a large project, what it loads for that, and how much there is to lay out.

    python -m tests.bench.service.paint --items 1000000 --labels 10 --annotators 10000 --save [--folder F]

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
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tests.bench import results
from tests.bench.service.pages import NAME, PAGES, PASSWORD, of_command_line, served
from tests.scheduled import until
from tests.service.web.browser.seen import browser

REPEATS = 5
BAR = 1000.0
"""Milliseconds to the first paint."""

SEEN = {
    **{name: path for name, path in PAGES.items() if "JSON" not in name and name != "metrics"},
    "sent back": "/projects/p/rework",
    "account": "/account",
    "users": "/admin/users",
    "tokens": "/admin/tokens",
}
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


def measure(folder: Path, port: int) -> tuple[list[str], dict[str, Any]]:
    """A line a page, and the same as figures."""
    figures: dict[str, dict[str, Any]] = {}
    with served(folder, port) as (client, _), browser() as chromium:
        _settled(client)
        base = str(client.base_url).rstrip("/")
        context = chromium.new_context()
        page = context.new_page()
        page.goto(f"{base}/login")
        page.get_by_label("Name").fill(NAME)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(f"{base}/")
        kept = context.storage_state()
        context.close()
        for name, path in SEEN.items():
            figures[name] = {}
            for device in DEVICES:
                found = [opened(chromium, device, base + path, kept) for _ in range(REPEATS)]
                paints = [each["paint"] for each in found]
                figures[name][device] = {"median": float(np.median(paints)), "worst": max(paints)}
                figures[name] |= {"kB": found[-1]["bytes"] / 1e3, "elements": found[-1]["elements"]}
    return _said(figures), figures


def _settled(client: httpx.Client) -> None:
    """Wait until the server has looked at the platform for the first time, which takes a processor of it."""
    for _ in range(600):
        if 'hitl_live_pulls_total{project="p"} 0.0' not in client.get("/metrics").text:
            return
        time.sleep(1.0)
    raise SystemExit("the server did not come to rest in ten minutes")


def _said(figures: dict[str, dict[str, Any]]) -> list[str]:
    lines = ["", f"{'':26}{'desktop':>18}{'phone':>18}", f"{'paint ms':26}" + f"{'median':>9}{'worst':>9}" * 2]
    lines[-1] += f"{'kB':>8}{'elements':>10}"
    for name, found in figures.items():
        paints = "".join(f"{found[device]['median']:>9.0f}{found[device]['worst']:>9.0f}" for device in DEVICES)
        lines.append(f"{name:26}{paints}{found['kB']:>8.0f}{found['elements']:>10.0f}")
    lines += ["", f"load of the machine: {os.getloadavg()[1]:.1f} on {os.cpu_count()} processors"]
    worst = {device: max(found[device]["median"] for found in figures.values()) for device in DEVICES}
    bars = [
        (f"first paint of every page within {BAR:.0f} ms, {device}", f"{slowest:.0f} ms", slowest <= BAR)
        for device, slowest in worst.items()
    ]
    return lines + results.held(bars)


def main() -> None:
    """As the first lines say."""
    of_command_line(__doc__, 8534, measure, "paint")


if __name__ == "__main__":
    main()
