"""A headless browser that looks at the pages of a real Label Studio."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

needs_browser = pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)",
)

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --window-size=1700,1000"
)
PATIENCE = 40.0


@contextmanager
def opened() -> Iterator[Any]:
    """A driver of a browser with a profile of its own."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    with tempfile.TemporaryDirectory() as profile:
        options = Options()
        options.binary_location = str(shutil.which("chromium"))
        for flag in [*FLAGS.split(), f"--user-data-dir={profile}"]:
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            yield driver
        finally:
            driver.quit()


def log_in(browser: Any, url: str, email: str, password: str) -> None:
    browser.get(f"{url}/user/login/")
    browser.find_element("name", "email").send_keys(email)
    browser.find_element("name", "password").send_keys(password)
    browser.find_element("css selector", "form button, form [type=submit]").click()
    wait(lambda: "/user/login" not in browser.current_url)


def wait(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.3)
    return found


def text(browser: Any) -> str:
    return str(browser.find_element("tag name", "body").text)


def open_consensus(browser: Any, url: str, email: str, project: int, task: int) -> None:
    """Log in, open a task, and choose the tab of the consensus."""
    log_in(browser, url, email, "a-long-password")
    browser.get(f"{url}/projects/{project}/data?task={task}")
    tab = "//*[contains(text(), 'hitl-con...')]"
    assert wait(lambda: browser.find_elements("xpath", tab)), text(browser)
    browser.find_elements("xpath", tab)[0].click()
