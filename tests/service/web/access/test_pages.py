"""The pages of access as a browser uses them: logging in and out, another password, users and tokens."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from fastapi import FastAPI

from hitl.service.web.access.accounts import Accounts
from hitl.service.web.access.roles import EVERY, Role
from tests.service.web.access.serving import PASSWORD, TEMPLATES, Browser, Clock

OTHER = "another good password"
HOSTILE = '"><script>alert(1)</script>'


@pytest.fixture
def here(accounts: Accounts) -> Accounts:
    """On both databases."""
    return accounts


@pytest.fixture
def admin(app: FastAPI, here: Accounts) -> Browser:
    here.add_user("root", PASSWORD, Role.ADMIN)
    browser = Browser(app)
    browser.log_in("root")
    return browser


def test_a_login_begins_a_session_and_ends_the_one_before(app: FastAPI, here: Accounts) -> None:
    here.add_user("ann", PASSWORD, Role.VIEWER)
    browser = Browser(app)
    assert browser.log_in("ann").status_code == 303
    first = browser.secret
    assert browser.get("/").json() == "ann"
    browser.log_in("ann")
    assert browser.secret != first, "a session that was planted before the login is no session after it"
    assert here.in_session(first) is None


def test_a_failed_login_says_so_and_no_more(app: FastAPI, here: Accounts) -> None:
    here.add_user("ann", PASSWORD, Role.VIEWER)
    names = ("ann", "nobody", HOSTILE, "a\0b", "x" * 3_000)
    pages = [Browser(app).log_in(name, OTHER, next="/projects/rte") for name in names]
    assert [page.status_code for page in pages] == [401] * len(names)
    assert len({page.text for page in pages}) == 1, "whether there is such a user cannot be seen"
    assert "name or password is wrong" in pages[0].text
    assert 'value="/projects/rte"' in pages[0].text
    assert all("set-cookie" not in page.headers for page in pages)


def test_too_many_failed_logins_wait(app: FastAPI, here: Accounts, clock: Clock) -> None:
    here.add_user("ann", PASSWORD, Role.VIEWER)
    browser = Browser(app)
    assert [browser.log_in("ann", OTHER).status_code for _ in range(5)] == [401] * 5
    page = browser.log_in("ann")
    assert (page.status_code, page.headers["retry-after"]) == (429, "1")
    assert "too many failed logins; try again in 1 s" in page.text
    clock.now += 1
    assert browser.log_in("ann").status_code == 303


def test_logout_ends_the_session(admin: Browser, here: Accounts) -> None:
    secret = admin.secret
    assert admin.post("/logout").status_code == 403, "an image of another page logs nobody out"
    answer = admin.send("/logout")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert here.in_session(secret) is None
    assert admin.secret == ""
    assert admin.get("/").status_code == 303


def test_who_has_lost_all_roles_may_log_in_as_another(app: FastAPI, here: Accounts) -> None:
    here.add_user("ann", PASSWORD, Role.VIEWER)
    here.add_user("bob", PASSWORD, Role.VIEWER)
    browser = Browser(app)
    browser.log_in("ann")
    first = browser.secret
    here.set_role("ann", None)
    assert browser.get("/").status_code == 403
    assert "<form" in browser.get("/login").text
    browser.log_in("bob")
    assert browser.get("/").json() == "bob"
    assert here.in_session(first) is None


def test_another_password_ends_the_other_sessions(app: FastAPI, admin: Browser, here: Accounts) -> None:
    elsewhere = Browser(app)
    elsewhere.log_in("root")
    fields = {"old": PASSWORD, "new": OTHER, "again": OTHER}
    for wrong, status, words in (
        ({"old": OTHER}, 400, "name or password is wrong"),
        ({"again": PASSWORD}, 400, "was not typed twice in the same way"),
        ({"new": "short", "again": "short"}, 400, "5 characters; expected 12"),
    ):
        page = admin.send("/account", **(fields | wrong))
        assert (page.status_code, words in page.text) == (status, True)
    assert elsewhere.get("/").status_code == 200
    assert admin.send("/account", **fields).headers["location"] == "/account?changed=1"
    assert "Your password is changed" in admin.get("/account?changed=1").text
    assert elsewhere.get("/").status_code == 303
    assert Browser(app).log_in("root", OTHER).status_code == 303


def test_a_session_that_was_stolen_cannot_guess_the_password(admin: Browser) -> None:
    codes = [admin.send("/account", old=f"guess {n}", new=OTHER, again=OTHER).status_code for n in range(8)]
    assert codes[-1] == 429


def test_a_token_has_no_password_to_change(app: FastAPI, here: Accounts) -> None:
    token = {"Authorization": f"Bearer {here.create_token('root', Role.ADMIN)}"}
    assert Browser(app).post("/account", {"old": "", "new": OTHER, "again": OTHER}, **token).status_code == 403
    assert Browser(app).get("/account", **token).status_code == 200


def test_an_admin_gives_and_takes_access(app: FastAPI, admin: Browser, here: Accounts) -> None:
    assert admin.send("/admin/users", name="ann", password=PASSWORD, role="lead", project="rte").status_code == 303
    ann = Browser(app)
    assert ann.log_in("ann").status_code == 303
    assert ann.get("/projects/rte").status_code == 200
    admin.send("/admin/users/role", name="ann", role="viewer", project="")
    admin.send("/admin/users/role", name="ann", role="none", project="rte")
    assert {user.name: user.roles for user in here.users()}["ann"] == {EVERY: Role.VIEWER}
    admin.send("/admin/users/password", name="ann", password=OTHER)
    assert ann.get("/").status_code == 303
    assert ann.log_in("ann", OTHER).status_code == 303
    page = admin.get("/admin/users").text
    assert "viewer of all projects" in page
    assert admin.send("/admin/users/remove", name="ann").status_code == 303
    assert ann.get("/").status_code == 303
    assert [user.name for user in here.users()] == ["root"]


@pytest.mark.parametrize(
    ("path", "fields", "words"),
    [
        ("/admin/users", {"name": "root", "role": "viewer"}, "exists already"),
        ("/admin/users", {"name": "ann", "role": "boss"}, "is unknown; expected one of viewer"),
        ("/admin/users", {"name": "ann", "role": "viewer", "password": "short"}, "5 characters"),
        ("/admin/users", {}, "is unknown"),
        ("/admin/users/role", {"name": "ann", "role": "viewer"}, "there is no"),
        ("/admin/users/remove", {"name": "ann"}, "there is no"),
        ("/admin/users/remove", {"name": "root"}, "cannot do this to yourself"),
        ("/admin/users/role", {"name": "root", "role": "none"}, "cannot do this to yourself"),
        ("/admin/users/password", {"name": "root", "password": OTHER}, "cannot do this to yourself"),
        ("/admin/tokens", {"name": "", "role": "viewer"}, "is no name"),
        ("/admin/tokens", {"name": "ci", "role": "boss"}, "is unknown"),
        ("/admin/tokens/revoke", {"token": "0"}, "there is no"),
    ],
)
def test_what_cannot_be_done_is_said_on_the_page(
    admin: Browser, here: Accounts, path: str, fields: dict[str, str], words: str
) -> None:
    page = admin.send(path, **fields)
    assert (page.status_code, words in page.text) == (400, True), page.text
    assert 'role="alert"' in page.text
    assert [user.name for user in here.users()] == ["root"]
    assert here.tokens() == []
    assert admin.get("/").status_code == 200, "the session goes on"


def test_a_token_is_shown_once(admin: Browser, here: Accounts) -> None:
    page = admin.send("/admin/tokens", name="ci", role="viewer", project="rte")
    (secret,) = re.findall(r'value="(hitl_[\w-]{43})"', page.text)
    caller = here.with_token(secret)
    assert caller is not None
    assert caller.role_in("rte") is Role.VIEWER
    later = admin.get("/admin/tokens")
    assert secret not in later.text
    assert "ci" in later.text
    admin.send("/admin/tokens/revoke", token=here.tokens()[0].id)
    assert here.with_token(secret) is None


def test_names_are_shown_as_text(admin: Browser, here: Accounts) -> None:
    here.add_user(HOSTILE, None, Role.VIEWER, HOSTILE)
    here.create_token(HOSTILE, Role.VIEWER, HOSTILE)
    for page in ("/admin/users", "/admin/tokens"):
        assert "<script>" not in admin.get(page).text
    assert "<script>" not in admin.send("/admin/users/remove", name=HOSTILE + "!").text
    assert "<script>" not in Browser(admin.app).get(f"/login?next=/{HOSTILE}").text
    here.add_user("'x", PASSWORD, Role.VIEWER, HOSTILE)
    browser = Browser(admin.app)
    browser.log_in("'x")
    assert "<script>" not in browser.get("/account").text


def test_no_cache_keeps_a_page(admin: Browser) -> None:
    for path in ("/account", "/admin/users", "/admin/tokens"):
        assert admin.get(path).headers["cache-control"] == "no-store"
    assert Browser(admin.app).get("/login").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("access/*.j2")), ids=lambda path: path.name)
def test_a_page_runs_and_styles_nothing_inline(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"<script|<style|\sstyle=|\son\w+=|javascript:|https?://|\|\s*safe", text)
    for method, action, inside in re.findall(
        r'<form method="(\w+)" action="([^"]+)"[^>]*>(.*?)</form>', text, re.DOTALL
    ):
        assert method == "post"
        assert action == "/login" or "{{ token(caller.csrf) }}" in inside or 'value="{{ caller.csrf }}"' in inside, (
            action
        )


def test_each_form_shows_the_token_and_each_field_has_a_label(admin: Browser, here: Accounts) -> None:
    here.add_user("ann", PASSWORD, Role.VIEWER)
    texts = [admin.get(path).text for path in ("/account", "/admin/users", "/admin/tokens")]
    texts += [Browser(admin.app).get("/login").text, admin.send("/admin/tokens", name="ci", role="viewer").text]
    for text in texts:
        for form in re.findall(r'<form method="post" action="(?!/login).*?</form>', text, re.DOTALL):
            assert f'name="csrf_token" value="{admin.csrf}"' in form
        alone = re.sub(r"<label>.*?</label>", "", text, flags=re.DOTALL)
        assert re.findall(r'<(?:input(?! type="hidden")|select)[^>]*>', alone) == []
        assert text.count("<h1>") == 1


def test_the_log_says_who_gave_access_and_no_secret(
    admin: Browser, here: Accounts, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "hitl.access"):
        admin.send("/admin/users", name="ann", password=OTHER, role="lead", project="rte")
        admin.send("/admin/users/password", name="ann", password=OTHER)
        admin.send("/admin/users/role", name="ann", role="none", project="rte")
        made = admin.send("/admin/tokens", name="ci", role="viewer").text
        admin.send("/admin/users/remove", name="ann")
        admin.send("/admin/users/remove", name="ann")
    said = [{"event": record.getMessage(), **vars(record)["fields"]} for record in caplog.records]
    assert [line["event"] for line in said] == [
        "user added",
        "password set",
        "role given",
        "token made",
        "user removed",
    ]
    assert {line["by"] for line in said} == {"root"}
    (secret,) = re.findall(r"hitl_[\w-]{43}", made)
    assert not any(word in str(said) for word in (OTHER, secret))
