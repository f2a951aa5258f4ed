"""Projects behind a real server, and a headless Chromium that looks at them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from argon2 import PasswordHasher

from hitl.events.sender import deliver
from hitl.project import opened, stored
from hitl.service.web.access.accounts import Accounts
from hitl.service.web.access.logins import Passwords
from hitl.service.web.access.roles import Role
from hitl.service.web.app import application
from hitl.service.web.projects import Projects
from hitl.service.web.server import service as full_service
from tests.scheduled import until
from tests.service.web.served import Crowd, pull, run, served_crowd
from tests.service.web.test_live import listening

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="needs chromium (Debian: apt-get install chromium)")

NAME, PASSWORD = "ann", "a long password"
SECRET = "the secret of webhooks"
START = 1_790_000_000


def crowd(items: int = 60, seed: int = 0) -> Crowd:
    """Eight annotators, one of whom gets worse, and a model that is a little too sure."""
    rng = np.random.default_rng(seed)
    classes = ("cat", "dog", "neither")
    who = [f"person-{k}" for k in range(8)]
    right = np.linspace(0.95, 0.6, 8)
    rows, texts, truth, said = [], {}, {}, {}
    for n in range(items):
        own = int(rng.integers(3))
        texts[f"photo-{n:03}"] = f"A photo of somebody's {'pet' if own < 2 else 'garden'}, taken on day {n + 1}."
        for k in rng.choice(8, 3 if n % 9 else 1, replace=False).tolist() if n < items - 5 else ():
            good = rng.random() < right[k] - (0.4 if k == 1 and n > items / 2 else 0)
            label = own if good else int((own + rng.integers(1, 3)) % 3)
            rows.append((f"photo-{n:03}", who[k], classes[label], START + 60 * len(rows)))
        sure = float(rng.uniform(0.4, 0.97))
        p = np.full(3, (1 - sure) / 2)
        p[own if rng.random() < sure - 0.05 else (own + 1) % 3] = sure
        said[f"photo-{n:03}"] = dict(zip(classes, p.tolist(), strict=True))
        if n % 20 == 3:
            truth[f"photo-{n:03}"] = classes[own]
    return Crowd(rows, texts, truth, {"resnet": said}, who[:4], "pets")


def wide(seed: int = 0) -> Crowd:
    """Forty classes, two hundred annotators, long names, long texts."""
    rng = np.random.default_rng(seed)
    classes = [f"class {j:02} of many" for j in range(39)] + ["a class with a name that is as long as a whole sentence"]
    who = [f"annotator.number.{k}@a-rather-long-name-of-an-agency.example.com" for k in range(200)]
    rows = [
        (
            f"item/{n}?part=1&of={'x' * (80 if n == 0 else 3)}",
            who[(7 * n + k) % 200],
            classes[int(rng.integers(40)) if k else n % 40],
        )
        for n in range(120)
        for k in range(4)
    ]
    texts = {row[0]: ("word " * 400 if n % 2 else "w" * 2000) for n, row in enumerate(rows[::4])}
    return Crowd(rows, texts, {}, {}, who, "a project whose name takes much room on a phone")


@dataclass
class Site:
    """A service that runs, with somebody who may do everything."""

    address: str
    configs: dict[str, Path]
    projects: Projects
    troubles: list[str] = field(default_factory=list)


@contextmanager
def site(configs: dict[str, Path], live: bool = False) -> Iterator[Site]:
    """The whole application on loopback."""
    quick = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HITL_WEBHOOK_SECRET", SECRET)
        projects = Projects(list(configs.values()))
        accounts = Accounts(next(iter(projects.values())).store.database)
        patch.setattr(Passwords, "_hasher", quick)
        accounts.add_user(NAME, PASSWORD, Role.ADMIN)
        accounts.create_token("reports", Role.VIEWER)
        app = full_service(projects, accounts, scheduler=False) if live else application(projects, accounts)
        with listening(app) as port:
            until(lambda: all(one.snapshot is not None for one in projects.values()))
            yield Site(f"http://127.0.0.1:{port}", configs, projects)


@contextmanager
def browser() -> Iterator[Any]:
    """A headless Chromium; nothing is downloaded for it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=options, env=dict(os.environ))
        try:
            yield chromium
        finally:
            chromium.close()


def watched(page: Any, where: Any) -> Any:
    """The page; what its console complains of, and requests to others, become troubles of the site `where`."""

    def complained(message: Any) -> None:
        if message.type in ("error", "warning"):
            where.troubles.append(f"{page.url}: {message.text}")

    def asked(request: Any) -> None:
        if not request.url.startswith((where.address, "data:")):
            where.troubles.append(f"{page.url}: asked {request.url}")

    page.on("console", complained)
    page.on("pageerror", lambda error: where.troubles.append(f"{page.url}: {error}"))
    page.on("request", asked)
    return page


def logged_in(page: Any, where: Site) -> Any:
    """The page after the login."""
    page.goto(f"{where.address}/login")
    page.get_by_label("Name").fill(NAME)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{where.address}/")
    return page


def projects_to_see(folder: Path) -> dict[str, Path]:
    """One as it should be, one before its first cycle, one with much of everything."""
    whole = crowd(150)
    several = replace(whole, rows=whole.rows[:150]).written(folder / "pets")
    run(several)
    for part in range(150, len(whole.rows), 60):
        with (several.parent / "labels" / "annotations.csv").open("a") as file:
            file.writelines(f"{','.join(map(str, row))}\n" for row in whole.rows[part : part + 60])
        run(several)
    with opened(several) as (settings, store, _):
        for name, query in (("Doubtful dogs", "show=contested&label=dog"), ("Most changed", "sort=change")):
            store.save_view(settings.name, name, query, NAME)
    few = Crowd([("a", "ann", "yes"), ("a", "bob", "no"), ("b", "ann", "no")], {"c": "not labeled"}, name="new")
    return {
        "pets": several,
        "new": served_crowd(folder / "new", few, after=pull),
        "wide": served_crowd(folder / "wide", wide(), after=run_and_tell),
    }


def run_and_tell(config: Path) -> None:
    """A cycle that tells addresses of which none answers."""
    names = ("chat", "a_name_of_thirty_one_letters_xx")
    entries = (f'[[events]]\nname = "{name}"\nurl = "http://127.0.0.1:9/x"\ntemplate = "slack"\n' for name in names)
    config.write_text(config.read_text().replace("0.97", "0.6") + "".join(entries))
    run(config)
    with stored(config) as (settings, store):
        deliver(settings, store)
