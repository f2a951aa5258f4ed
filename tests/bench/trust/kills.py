"""Cycles on a real Label Studio that are killed at any moment, while people go on: is anything lost or done twice?

    python -m tests.bench.trust.kills [--kills 300] [--minutes 60] [--save]

Two projects, one with a store on SQLite and one on PostgreSQL. Time and again a process begins a cycle, somebody
answers, changes or deletes meanwhile, and the process is killed (SIGKILL) after a random part of the time that a cycle
takes. Every second process is number 1 of a container (`unshare --pid`), where the system allows it. Then a cycle has
to say ok at once, and `hitl audit` must find no difference.

The process that is killed: `python -m tests.bench.trust.kills --child URL TOKEN PROJECT STORE CREW...`
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from hitl import cycle
from hitl.connectors.label_studio import LabelStudio
from hitl.connectors.label_studio.server import LocalServer
from hitl.errors import HitlError
from hitl.store import Store
from tests.bench import results
from tests.bench.bench_schedule_crashes import postgres
from tests.connectors.label_studio.conftest import SENTIMENT, Project, choice
from tests.connectors.label_studio.projects import settings_for
from tests.connectors.label_studio.trust.scenes import NOON, Scene

ROOT = Path(__file__).parents[3]
CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


class World:
    """A project, its store, and what people do there."""

    def __init__(self, server: LocalServer, folder: Path, store: str, seed: int) -> None:
        people = [server.sign_up(f"kills{seed}-{k}@example.com", "a-long-password") for k in range(4)]
        number = LabelStudio.create_project(server.url, server.token, "test project", SENTIMENT)
        self.random = random.Random(seed)
        self.scene = Scene(Project(server, people, number), server.url, folder)
        self.scene.store.close()
        self.scene.store = Store(store)
        self.store = store
        self.scene.fill()
        self.seconds = 1.0

    def child(self, contained: bool) -> subprocess.Popen[str]:
        """A process that is about to begin a cycle; it does when it reads a line."""
        project, crew = self.scene.project, self.scene.settings.crew.annotators
        place = [project.server.url, project.server.token, str(project.number), self.store, *crew]
        command = [sys.executable, "-m", "tests.bench.trust.kills", "--child", *place]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        child = subprocess.Popen([*(CONTAINER if contained else ()), *command], cwd=ROOT, text=True, **pipes)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        return child

    def people_go_on(self) -> None:
        """One answer, one change, or one that is deleted."""
        project, chance = self.scene.project, self.random
        task = chance.choice(self.scene.tasks)
        given = project.task(task)["annotations"]
        label, how = chance.choice(("good", "bad")), chance.randrange(4)
        if how == 0 and given:
            project.admin.patch(f"/api/annotations/{given[-1]['id']}/", {"result": choice(label)})
        elif how == 1 and len(given) > 1:
            project.admin.delete(f"/api/annotations/{given[-1]['id']}/")
        else:
            project.answer(chance.randrange(4), task, label)

    def kill_one(self, contained: bool) -> tuple[str, list[str]]:
        """How the process ended, and what was wrong after the next cycle."""
        self.people_go_on()
        child = self.child(contained)
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
        begun, until = time.monotonic(), self.random.uniform(0, 1.1) * self.seconds
        if self.random.random() < 0.5:
            self.people_go_on()
        while child.poll() is None and time.monotonic() - begun < until:
            time.sleep(0.005)
        killed = child.poll() is None
        child.send_signal(signal.SIGKILL)
        said, _ = child.communicate(timeout=60)
        wrong = [] if killed or said == "ok\n" else [f"a cycle ended with {said!r}"]
        if not killed:
            self.seconds = max(0.2, min(self.seconds, time.monotonic() - begun))
        try:
            self.scene.run()
            wrong += self.scene.differences()
        except HitlError as error:
            wrong.append(f"the next cycle: {error!r}")
        return "killed" if killed else "came to its end", wrong


def child(arguments: Sequence[str]) -> None:
    """A cycle, once all is loaded and a line is read."""
    url, token, number, store_url, *crew = arguments
    connector = LabelStudio(url, token, int(number), abstain=("Unsure",), page_size=4)
    settings = settings_for(int(number), crew, open_questions=6)
    with Store(store_url) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            cycle.run(settings, store, connector, now=NOON)
            print("ok", flush=True)
        except HitlError as error:
            print(repr(error), flush=True)


def may_contain() -> bool:
    """Whether this system lets us be number 1 of a container."""
    try:
        return subprocess.run([*CONTAINER, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def main(arguments: Sequence[str] | None = None) -> int:
    options = results.options(__doc__, arguments, kills=300, minutes=60.0, child=())
    if options.child:
        child(options.child)
        return 0
    ended: Counter[str] = Counter()
    wrong: list[str] = []
    contained, until, turn = may_contain(), time.monotonic() + 60 * options.minutes, 0
    with LocalServer() as server, tempfile.TemporaryDirectory() as folder, postgres() as database:
        stores = {"SQLite": f"sqlite:///{folder}/killed.db", "PostgreSQL": database}
        worlds = {name: World(server, Path(folder) / name, url, n) for n, (name, url) in enumerate(stores.items())}
        while sum(ended[f"{name} killed"] for name in worlds) < options.kills and time.monotonic() < until:
            name = list(worlds)[turn % 2]
            as_first = contained and turn % 4 > 1
            how, found = worlds[name].kill_one(as_first)
            ended[f"{name} {how}"] += 1
            ended["as number 1 of a container"] += as_first and how == "killed"
            wrong += [f"{turn}, {name}: {line}" for line in found]
            turn += 1
        for world in worlds.values():
            world.scene.store.close()
    page = results.Page()
    page.tell(f"{datetime.now(UTC):%Y-%m-%d}, cycles killed at any moment on a real Label Studio", "")
    page.tell(*(f"{how:<32} {number:>6}" for how, number in sorted(ended.items())))
    page.tell(f"{'wrong':<32} {len(wrong):>6}", *wrong)
    if options.save:
        page.save("trust_kills", {**ended, "wrong": wrong}, f"trust.kills --kills {options.kills} --save")
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main())
