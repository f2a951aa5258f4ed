"""What a route answers to whom: nobody, too small a role, another project, a page of somebody else."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable

import pytest
from fastapi import FastAPI

from hitl.service.web.access.accounts import Accounts
from hitl.service.web.access.guard import own_path
from hitl.service.web.access.proxies import Proxies
from hitl.service.web.access.roles import Role
from tests.service.web.access.serving import PASSWORD, Browser

PLAN = "/projects/rte/plan"


@pytest.fixture
def browser(app: FastAPI, here: Accounts) -> Browser:
    """Ann, who leads rte, is logged in."""
    here.add_user("ann", PASSWORD, Role.LEAD, "rte")
    browser = Browser(app)
    assert browser.log_in("ann").status_code == 303
    return browser


# -- nobody ------------------------------------------------------------------------------------------------


def test_a_program_without_a_token_is_told_so(app: FastAPI) -> None:
    for path in ("/", "/projects/rte"):
        answer = Browser(app).get(path, Accept="application/json")
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert Browser(app).post(PLAN, Accept="application/json").status_code == 401


def test_a_browser_goes_to_the_login_and_comes_back(app: FastAPI, here: Accounts) -> None:
    here.add_user("ann", PASSWORD, Role.LEAD, "rte")
    browser = Browser(app)
    answer = browser.get("/projects/rte?sort=a%26b&page=2")
    assert (answer.status_code, answer.headers["location"]) == (
        303,
        "/login?next=%2Fprojects%2Frte%3Fsort%3Da%2526b%26page%3D2",
    )
    form = browser.get(answer.headers["location"]).text
    assert 'name="next" value="/projects/rte?sort=a%26b&amp;page=2"' in form
    back = browser.log_in("ann", next="/projects/rte?sort=a%26b&page=2")
    assert back.headers["location"] == "/projects/rte?sort=a%26b&page=2"
    assert browser.get("/login").headers["location"] == "/", "who is logged in needs no form"
    sent = Browser(app).post(PLAN, Referer="http://localhost:8000/projects/rte/plan")
    assert (sent.status_code, sent.headers["location"]) == (303, "/login?next=%2Fprojects%2Frte%2Fplan")


def test_a_part_of_a_page_has_the_whole_page_go_to_the_login(app: FastAPI) -> None:
    answer = Browser(app).get(
        "/projects/rte", **{"HX-Request": "true", "HX-Current-URL": "http://localhost:8000/a?b=1"}
    )
    assert (answer.status_code, answer.headers["hx-redirect"]) == (401, "/login?next=%2Fa%3Fb%3D1")


@pytest.mark.parametrize(
    "text",
    [
        "//evil.example",
        "https://evil.example/",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "javascript:alert(1)",
        "evil",
        "",
        "/a\r\nSet-Cookie: x=1",
        "/" + "a" * 2_000,
    ],
)
def test_the_login_leads_to_own_pages_alone(app: FastAPI, here: Accounts, text: str) -> None:
    here.add_user("ann", PASSWORD, Role.VIEWER)
    assert own_path(text) == "/"
    assert Browser(app).log_in("ann", next=text).headers["location"] == "/"
    assert own_path("/projects/rte?x=1#y") == "/projects/rte?x=1#y"


# -- roles and projects ------------------------------------------------------------------------------------


def test_a_project_of_others_is_as_one_that_is_not_there(browser: Browser) -> None:
    answer = browser.get("/projects/secret")
    assert (answer.status_code, answer.json()) == (404, {"detail": "there is no project 'secret'"})


# -- pages of others ---------------------------------------------------------------------------------------


def test_an_unsafe_request_shows_the_token_of_its_session(browser: Browser) -> None:
    other = Browser(browser.app)
    other.log_in("ann")
    assert browser.csrf != other.csrf
    for shown in ({}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": other.csrf}, {"X-CSRF-Token": "\xe4".encode("latin-1")}):
        assert browser.post(PLAN, **shown).status_code == 403
    assert browser.post(PLAN, {"csrf_token": other.csrf}).status_code == 403
    assert browser.client.post(f"{PLAN}?csrf_token={browser.csrf}").status_code == 403, "addresses are in logs"
    assert browser.client.post(PLAN, json={"csrf_token": browser.csrf}).status_code == 403
    assert browser.post(PLAN, **{"X-CSRF-Token": browser.csrf}).status_code == 200
    assert browser.post(PLAN, {"csrf_token": browser.csrf}).status_code == 200
    assert browser.client.post(PLAN, files={"csrf_token": (None, browser.csrf)}).status_code == 200
    upload = {"csrf_token": ("name.txt", browser.csrf)}
    assert browser.client.post(PLAN, files=upload).status_code == 400, "nothing here takes a file"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://localhost:8000"}, 200),
        ({"Origin": "https://localhost:8000"}, 200),
        ({"Origin": "http://localhost:9000"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost:8000.evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:port"}, 403),
        ({"Origin": "http://[::1"}, 403),
        ({"Origin": ""}, 403),
        ({"Origin": "null", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "http://localhost:8000", "Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_an_unsafe_request_comes_from_a_page_of_ours(browser: Browser, headers: dict[str, str], status: int) -> None:
    assert browser.post(PLAN, **headers, **{"X-CSRF-Token": browser.csrf}).status_code == status
    assert browser.get("/projects/rte", **headers).status_code == 200
    login = browser.post("/login", {"name": "ann", "password": PASSWORD}, **headers)
    assert login.status_code == (303 if status == 200 else 403), "nobody is logged in as another one"


def test_a_usual_port_need_not_be_written(app: FastAPI, here: Accounts) -> None:
    here.add_user("ann", PASSWORD, Role.LEAD)
    browser = Browser(app, "https://hitl.example")
    browser.log_in("ann")
    for origin in ("https://hitl.example", "https://hitl.example:443"):
        assert browser.post(PLAN, Origin=origin, **{"X-CSRF-Token": browser.csrf}).status_code == 200
    for origin in ("https://hitl.example:444", "https://example"):
        assert browser.post(PLAN, Origin=origin, **{"X-CSRF-Token": browser.csrf}).status_code == 403


# -- cookies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("origin", "name", "secure"),
    [
        ("http://localhost:8000", "hitl-session", False),
        ("http://127.0.0.1", "hitl-session", False),
        ("http://[::1]:8000", "hitl-session", False),
        ("https://localhost", "__Host-hitl-session", True),
        ("https://hitl.example", "__Host-hitl-session", True),
        ("http://hitl.example", "__Host-hitl-session", True),
    ],
)
def test_the_cookie_is_for_the_browser_alone(
    app: FastAPI, here: Accounts, origin: str, name: str, secure: bool
) -> None:
    here.add_user("ann", PASSWORD, Role.VIEWER)
    browser = Browser(app, origin)
    cookie = browser.log_in("ann").headers["set-cookie"]
    parts = {part.strip() for part in cookie.split(";")[1:]}
    assert cookie.startswith(f"{name}=")
    assert parts == {"HttpOnly", "Max-Age=43200", "Path=/", "SameSite=lax"} | ({"Secure"} if secure else set())
    warned = "plain http" in Browser(app, origin).get("/login").text
    assert warned == origin.startswith("http://hitl"), "the page says why no login will last"


def test_a_cookie_of_another_name_is_none(app: FastAPI, here: Accounts) -> None:
    """A neighbouring host may set cookies for ours, but none of which the name begins with __Host-."""
    here.add_user("ann", PASSWORD, Role.VIEWER)
    secret = here.log_in("ann", PASSWORD)
    browser = Browser(app, "https://hitl.example")
    assert browser.get("/", Cookie=f"hitl-session={secret}").status_code == 303
    assert browser.get("/", Cookie=f"__Host-hitl-session={secret}").status_code == 200


# -- tokens ------------------------------------------------------------------------------------------------


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_a_token_may_be_a_password_of_basic_authorization(app: FastAPI, here: Accounts) -> None:
    token, browser = here.create_token("label-studio", Role.LEAD, "rte"), Browser(app)
    assert browser.get("/projects/rte", Authorization=basic("any", token)).json() == "label-studio"
    assert browser.post(PLAN, Authorization=basic("any", token)).status_code == 200
    answer = browser.post(PLAN, Authorization=basic("any", token), Origin="http://evil.example")
    assert answer.status_code == 403, "a browser may keep it and send it by itself"
    for header in (basic("any", "hitl_wrong"), f"Bearer {token}x", "Bearer", "Bearer "):
        assert browser.get("/projects/rte", Authorization=header).status_code == 401


def test_a_token_needs_no_csrf_token(app: FastAPI, here: Accounts) -> None:
    token = here.create_token("ci", Role.LEAD)
    answer = Browser(app).post(PLAN, Authorization=f"bearer {token}", Origin="http://localhost:3000")
    assert answer.status_code == 200, "no browser sends it by itself"


def test_a_wrong_token_is_not_made_good_by_a_session(browser: Browser) -> None:
    assert browser.get("/projects/rte", Authorization="Bearer hitl_wrong").status_code == 401


@pytest.mark.parametrize("header", ["Basic !!!", "Basic", basic("ann", "of the proxy"), "Negotiate YII=", "Digest x"])
def test_what_a_proxy_asks_for_is_not_ours(browser: Browser, header: str) -> None:
    assert browser.get("/projects/rte", Authorization=header).status_code == 200


# -- proxies -----------------------------------------------------------------------------------------------

USER = "X-Forwarded-User"
Behind = Callable[..., Browser]


@pytest.fixture
def behind(app: FastAPI) -> Behind:
    """A browser behind a proxy, which is trusted unless `address` is another one."""

    def made(role: str | None = None, address: str = "10.0.0.7", origin: str = "https://hitl.example") -> Browser:
        return Browser(app, origin, address, Proxies.of(["10.0.0.0/24", "::1"], USER, role))

    return made


def test_a_proxy_names_a_user_who_is_known(behind: Behind, here: Accounts) -> None:
    here.add_user("ann", None, Role.LEAD, "rte")
    browser = behind()
    assert browser.get("/projects/rte", **{USER: "ann"}).json() == "ann"
    assert browser.get("/projects/pets", **{USER: "ann"}).status_code == 404
    answer = browser.get("/", **{USER: "eve"})
    assert (answer.status_code, "ask an admin" in answer.text) == (403, True)
    assert browser.get("/").status_code == 303, "without the header there is the login"


def test_a_user_who_is_not_known_has_the_role_of_the_settings(behind: Behind, here: Accounts) -> None:
    here.add_user("ann", None, Role.LEAD, "rte")
    browser = behind("viewer")
    assert browser.get("/projects/pets", **{USER: "eve"}).json() == "eve"
    assert browser.post("/projects/pets/plan", **{USER: "eve"}).status_code == 403
    assert browser.get("/projects/pets", **{USER: "ann"}).status_code == 404, "who is known has the own roles alone"
    for name in ("", " ", "x" * 101):
        assert browser.get("/", **{USER: name}).status_code in (303, 403)


def test_a_name_that_is_not_ascii_has_its_own_roles_alone(behind: Behind, here: Accounts) -> None:
    """A proxy writes UTF-8, or Latin-1; letters may be composed in another way than here."""
    here.add_user("José", None, Role.VIEWER, "rte")
    client = behind("viewer").client
    spelled = ["José".encode(), "José".encode("latin-1"), "Jose\u0301".encode()]
    for name in spelled:
        headers = [(USER.encode(), name), (b"Accept", b"text/html")]
        assert client.get("/projects/rte", headers=headers).json() == "José"
        assert client.get("/projects/pets", headers=headers).status_code == 404


def test_a_name_in_another_case_has_neither_their_roles_nor_others(behind: Behind, here: Accounts) -> None:
    here.add_user("Ann", None, Role.LEAD, "rte")
    browser = behind("viewer")
    assert browser.get("/projects/rte", **{USER: "Ann"}).json() == "Ann"
    assert browser.get("/projects/pets", **{USER: "ann"}).status_code == 403
    assert browser.get("/projects/rte", **{USER: "ann"}).status_code == 403
    here.add_user("Zoe\u0308", None, Role.VIEWER, "rte")  # in two characters
    headers = [(USER.encode(), "Zoë".encode()), (b"Accept", b"text/html")]
    assert browser.client.get("/projects/pets", headers=headers).status_code == 403


def test_an_address_that_is_none_is_no_failure(app: FastAPI) -> None:
    answer = Browser(app).get("/", **{"HX-Request": "true", "HX-Current-URL": "http://["})
    assert (answer.status_code, answer.headers["hx-redirect"]) == (401, "/login?next=%2F")


def test_a_proxy_that_is_not_trusted_names_nobody(
    behind: Behind, here: Accounts, caplog: pytest.LogCaptureFixture
) -> None:
    here.add_user("ann", None, Role.ADMIN)
    browser = behind("admin", address="10.0.1.7")
    with caplog.at_level(logging.WARNING):
        assert [browser.get("/", **{USER: "ann"}).status_code for _ in range(3)] == [303] * 3
    said = [record.getMessage() for record in caplog.records if USER in record.getMessage()]
    assert said == [f"the header {USER} of a request was ignored: it did not come from a proxy that is trusted"]


def test_two_names_are_none(behind: Behind, here: Accounts) -> None:
    here.add_user("ann", None, Role.ADMIN)
    client = behind().client
    for header in (USER, USER.lower()):
        answer = client.get("/", headers=[(USER, "ann"), (header, "eve"), ("Accept", "text/html")])
        assert answer.status_code == 303


def test_a_session_of_a_proxy_needs_a_csrf_token_too(behind: Behind, here: Accounts) -> None:
    """The browser sends the proxy's own cookie with requests of any page."""
    here.add_user("ann", None, Role.LEAD, "rte")
    browser = behind()
    assert browser.post(PLAN, **{USER: "ann"}).status_code == 403
    caller = here.by_proxy("ann", None)
    assert caller is not None
    assert caller.csrf
    headers = {USER: "ann", "X-CSRF-Token": caller.csrf}
    assert browser.post(PLAN, **headers).status_code == 200
    assert browser.post(PLAN, **headers, Origin="https://evil.example").status_code == 403
    assert here.in_session("proxy:ann") is None, "its key is no secret"
    assert browser.get("/", Cookie="__Host-hitl-session=proxy:ann").status_code == 303


def test_a_login_of_ours_works_behind_a_proxy_too(behind: Behind, here: Accounts) -> None:
    here.add_user("root", PASSWORD, Role.ADMIN)
    browser = behind()
    assert browser.log_in("root").status_code == 303
    assert browser.get("/admin/users", **{USER: "eve"}).status_code == 200


@pytest.mark.parametrize(
    ("client", "forwarded", "address"),
    [
        ("10.0.0.7", ["203.0.113.9"], "203.0.113.9"),
        ("10.0.0.7", ["1.1.1.1, 203.0.113.9, 10.0.0.8"], "203.0.113.9"),
        ("10.0.0.7", ["1.1.1.1", "203.0.113.9"], "203.0.113.9"),
        ("10.0.0.7", ["10.0.0.8"], "10.0.0.8"),
        ("10.0.0.7", ["203.0.113.9:4000"], "203.0.113.9"),
        ("10.0.0.7", ["[2001:db8::1]:4000, 10.0.0.8:80"], "2001:db8::1"),
        ("10.0.0.7", ["2001:db8::1"], "2001:db8::1"),
        ("10.0.0.7", [], "10.0.0.7"),
        ("203.0.113.9", ["1.1.1.1"], "203.0.113.9"),
        ("::ffff:10.0.0.7", ["1.1.1.1"], "1.1.1.1"),
    ],
)
def test_failed_logins_count_for_the_address_behind_the_proxy(
    behind: Behind, here: Accounts, client: str, forwarded: list[str], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    monkeypatch.setattr(here._slowdown, "begin", lambda name, where: counted.append(where) or 0.0)
    headers = [("X-Forwarded-For", line) for line in forwarded]
    answer = behind(address=client).client.post("/login", data={"name": "ann", "password": "x"}, headers=headers)
    assert answer.status_code == 401
    assert counted == [address]


def test_the_proxy_says_whether_the_browser_has_https(behind: Behind) -> None:
    page = [
        behind(address=address, origin="http://hitl.example").get("/login", **{"X-Forwarded-Proto": "https"}).text
        for address in ("10.0.0.7", "10.9.9.9")
    ]
    assert ["plain http" in text for text in page] == [False, True]
