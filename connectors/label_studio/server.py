"""Run a local Label Studio, for tests and for `hitl demo --label-studio`.

    <home>/label-studio-1.23.2/venv       the server, in its own virtual environment (about 1 GB)
    <home>/label-studio-1.23.2/template   a migrated data folder with one administrator, copied for each server

A copied template is ready in about 4 s; migrating an empty folder takes 30 s. The server listens on loopback only.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from hitl.errors import BadSettings, MissingExtra, Unreachable
from hitl.platform import Progress, silent

VERSION = "1.23.2"
START_SECONDS = 120.0
STOP_SECONDS = 10.0
LOOPBACK = "127.0.0.1"
_ACCOUNT, _PORT = "hitl.json", "port"
_DATABASE = "label_studio.sqlite3"
# Django's server writes a response in two parts, and the second would wait 40 ms for an acknowledgment.
_AT_ONCE = """
import socketserver, sys
socketserver.StreamRequestHandler.disable_nagle_algorithm = True
from label_studio.server import main
sys.exit(main())
"""


@dataclass(frozen=True, slots=True)
class Person:
    """An annotator signed up on a server: the platform's id as text, the email address and an API token."""

    id: str
    email: str
    token: str


def installed_in() -> Path:
    """Return the installation folder of the server: in $HITL_HOME, else in hitl of the XDG cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("HITL_HOME") or Path(cache) / "hitl").absolute() / f"label-studio-{VERSION}"


def is_installed() -> bool:
    """Return True if `install` has nothing to do."""
    return all((installed_in() / name).exists() for name in ("installed", "venv/bin/python"))


def install(progress: Progress = silent) -> Path:
    """Return the server's Python, and install it first if needed (some minutes, about 1 GB).

    The stamp is written last, so an interrupted installation is repeated. Raises MissingExtra if pip fails.
    """
    environment = installed_in() / "venv"
    python = environment / "bin" / "python"
    if is_installed():
        return python
    with _locked(installed_in()):
        if is_installed():  # another process installed it meanwhile
            return python
        progress(f"install Label Studio {VERSION}", 0, None)
        shutil.rmtree(environment, ignore_errors=True)
        package = f"label-studio=={VERSION}"
        _run([sys.executable, "-m", "venv", str(environment)])
        try:  # uv takes a third of pip's time, but knows nothing of pip's settings
            _run([str(Path(sys.executable).with_name("uv")), "pip", "install", "-q", "--python", str(python), package])
        except (OSError, MissingExtra):
            _run([str(python), "-m", "pip", "install", "--quiet", package])
        (installed_in() / "installed").write_text(VERSION + "\n")
    return python


def _run(step: list[str]) -> None:
    done = subprocess.run(step, capture_output=True, text=True, errors="replace", check=False, env=_clean())
    if done.returncode != 0:
        raise MissingExtra(f"{' '.join(step)} failed:\n{(done.stdout + done.stderr).strip()[-2000:]}")


def template(python: Path, progress: Progress = silent) -> Path:
    """Return a migrated data folder with an administrator and legacy tokens, created once (about 30 s)."""
    ready = installed_in() / "template"
    if (ready / _ACCOUNT).exists():
        return ready
    with _locked(installed_in()), tempfile.TemporaryDirectory(prefix="template-", dir=installed_in()) as folder:
        if (ready / _ACCOUNT).exists():  # another process created it meanwhile
            return ready
        progress("prepare Label Studio", 0, 1)
        data = Path(folder) / "data"
        data.mkdir()
        secret = {"password": secrets.token_urlsafe(12), "token": secrets.token_hex(20)}
        account = {"email": "admin@example.com", **secret}
        with _running(python, data, account):
            _write_account(data, account)
        shutil.rmtree(ready, ignore_errors=True)
        data.rename(ready)
        progress("prepare Label Studio", 1, 1)
    return ready


class LocalServer:
    """A Label Studio server on a free loopback port, for the duration of a `with` block.

    Attributes (inside the block):
        url, token: its address, and the administrator's API token.
        admin_email, admin_password: for its web pages.
        folder: its data.
    """

    def __init__(self, data: Path | None = None, progress: Progress = silent) -> None:
        """Set the folder of the server's data, which is filled from the template if empty. None: a temporary folder."""
        self.folder = None if data is None else data.absolute()  # the server runs in this folder
        self._progress, self._open = progress, ExitStack()
        self.url = self.token = self.admin_email = self.admin_password = ""

    def __enter__(self) -> LocalServer:
        """Start it and wait until it responds.

        Raises Unreachable with the end of its log if it does not, and BadSettings for a folder of another program.
        """
        python = install(self._progress)
        source = template(python, self._progress)
        with ExitStack() as opened:
            if self.folder is None:
                self.folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="hitl-label-studio-")))
            data = self.folder
            _fill(source, data)
            account = json.loads((data / _ACCOUNT).read_text())
            self.url = opened.enter_context(_running(python, data, account))
            self._open = opened.pop_all()
        self.token, self.admin_email, self.admin_password = account["token"], account["email"], account["password"]
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def sign_up(self, email: str, password: str) -> Person:
        """Add an annotator through the invitation page, as an annotator would. Raises Unreachable on failure."""
        headers = {"Authorization": f"Token {self.token}"}
        invite = httpx.get(f"{self.url}/api/invite", headers=headers).json()["invite_url"]
        with httpx.Client(base_url=self.url, follow_redirects=True, timeout=60) as browser:
            csrf = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', browser.get(invite).text)
            form = {"email": email, "password": password, "allow_newsletters": "false"}
            browser.post(invite, data=form | {"csrfmiddlewaretoken": csrf.group(1) if csrf else ""})
            answer = browser.get("/api/current-user/token")
            if answer.status_code != 200:
                raise Unreachable(f"{self.url}: signing up {email} failed (HTTP {answer.status_code})")
            whoami = browser.get("/api/current-user/whoami").json()
        return Person(id=str(whoami["id"]), email=email, token=answer.json()["token"])


def _clean() -> dict[str, str]:
    """Return our environment without variables that would make another Python or Django find the wrong modules."""
    ours = ("PYTHON", "DJANGO", "LABEL_STUDIO", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


@contextmanager
def _locked(base: Path) -> Iterator[None]:
    """Let one process at a time prepare the folder."""
    base.mkdir(parents=True, exist_ok=True)
    with open(base / "lock", "w") as handle:
        with suppress(ImportError):  # no fcntl on Windows: users must avoid two first starts at once
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fill(source: Path, data: Path) -> None:
    """Copy the template into an empty folder, with a new token, so that a server that accepts the token is ours."""
    if (data / _ACCOUNT).exists():
        return
    if (data / _DATABASE).exists():
        raise BadSettings(f"{data} holds a Label Studio that hitl did not make: choose an empty folder")
    shutil.copytree(source, data, dirs_exist_ok=True, ignore=shutil.ignore_patterns(_ACCOUNT, _PORT))
    account = json.loads((source / _ACCOUNT).read_text())
    new = secrets.token_hex(20)
    with closing(sqlite3.connect(data / _DATABASE)) as database, database:
        database.execute("UPDATE authtoken_token SET key = ? WHERE key = ?", (new, account["token"]))
    _write_account(data, account | {"token": new})


def _write_account(data: Path, account: Mapping[str, str]) -> None:
    path = data / _ACCOUNT
    path.touch(mode=0o600)
    path.write_text(json.dumps(account))


@contextmanager
def _running(python: Path, data: Path, account: Mapping[str, str]) -> Iterator[str]:
    """Start the server on a free port, yield its URL once it responds, and stop it (SIGTERM, then SIGKILL)."""
    environment = _clean() | {
        "LABEL_STUDIO_BASE_DATA_DIR": str(data),
        "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
        "SSRF_PROTECTION_ENABLED": "false",  # webhooks and model backends on loopback
        "ML_BLOCK_LOCAL_IP": "false",
        "LATEST_VERSION_CHECK": "false",
        "COLLECT_ANALYTICS": "false",
        "SENTRY_DSN": "",
        "FRONTEND_SENTRY_DSN": "",
        "LABEL_STUDIO_USERNAME": account["email"],  # not as arguments, which are visible to every user
        "LABEL_STUDIO_PASSWORD": account["password"],
        "LABEL_STUDIO_USER_TOKEN": account["token"],
    }
    log, last = data / "server.log", data / _PORT
    for attempt in range(3):  # the port may be taken between our check and the server's bind
        port = _free_port(int(last.read_text()) if attempt == 0 and last.exists() else 0)
        last.write_text(port)
        step = [str(python), "-c", _AT_ONCE, "start", "--no-browser", "--internal-host", LOOPBACK, "--port", port]
        with (
            open(log, "ab") as output,
            subprocess.Popen(
                [*step, "--log-level", "ERROR"],
                env=environment, cwd=data, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            ) as process,
        ):  # fmt: skip
            url = f"http://{LOOPBACK}:{port}"
            try:
                if _responds(process, url, account["token"]):
                    yield url
                    return
            finally:
                process.terminate()
                try:
                    process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
    tail = log.read_text(errors="replace")[-2000:]
    raise Unreachable(f"Label Studio did not start within {START_SECONDS:.0f} s; the end of {log}:\n{tail}")


def _free_port(wanted: int) -> str:
    """Return this port, with which the server's address stays the same, or another one if it is taken or 0."""
    with suppress(OSError), socket.create_server((LOOPBACK, wanted)) as probe:
        return str(probe.getsockname()[1])
    return _free_port(0)


def _responds(process: subprocess.Popen[bytes], url: str, token: str) -> bool:
    """Return True if our server responds at the URL within START_SECONDS, and False if it does not or has ended."""
    deadline = time.monotonic() + START_SECONDS
    # A single client: creating one takes a fifth of the time between requests.
    with httpx.Client(base_url=url, timeout=30) as asking:
        while time.monotonic() < deadline and process.poll() is None:
            with suppress(httpx.HTTPError):
                if asking.get("/health", timeout=5).status_code == 200:
                    answer = asking.get("/api/current-user/whoami", headers={"Authorization": f"Token {token}"})
                    return bool(answer.status_code == 200)
            time.sleep(0.1)
    return False
