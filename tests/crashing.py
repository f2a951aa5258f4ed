"""A scheduler that is killed again and again: `python -m tests.crashing FOLDER URL KILLS SEED` prints figures as JSON.

Each round is one new answer in the tables; the project's next time comes soon after its last cycle has ended. One to
three schedulers are started and killed with SIGKILL, half of them after a random time (uniform over what an undisturbed
one takes), half after a random step (uniform over its steps, which are many where much is written); then one more is
left to finish. Every scheduler is a process of its own, forked from this one, which has compiled and opens no database.

    lost     a round without a recorded cycle that saw its answer and whose operations are all confirmed
    twice    a second recorded cycle of a round, or an operation that changed the platform twice
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from hitl.connectors.tables import Tables
from hitl.cycle import run_if_changed
from hitl.platform import Operation, Receipt
from hitl.project import opened
from hitl.service.loops import Loops, projects_of
from hitl.store import Store

NAME, ITEMS = "crashing", 40
FIRST = [(n, who) for n in range(ITEMS) for who in ("ann", "bob", "cyd")]


def label_of(n: int, who: str) -> int:
    return (n + ((3 * n + ord(who[-1])) % 5 == 0)) % 2


def make_project(folder: Path, url: str) -> Path:
    """Tables, and a schedule whose own times do not come while the test runs."""
    folder.mkdir()
    write_answers(folder, 0)
    settings = (
        f'name = "{NAME}"\nstore = "{url}"\n[source]\nkind = "tables"\npath = "."\nclasses = ["0", "1"]\n'
        '[budget]\nopen_questions = 12\n[crew]\nannotators = ["dee", "eve"]\n[schedule]\nevery = "0.3s"\n'
    )
    (folder / "hitl.toml").write_text(settings)
    return folder / "hitl.toml"


def write_answers(folder: Path, rounds: int) -> None:
    more = [(k % ITEMS, f"w{k // ITEMS}") for k in range(rounds)]
    rows = [f"{n},{who},{label_of(n, who)}" for n, who in FIRST + more]
    (folder / "annotations.csv").write_text("\n".join(["item,annotator,label", *rows]) + "\n")


def forked(work: Callable[[], Any]) -> int:
    """The pid of a child that does it and ends: with 0, or 1 and what went wrong on standard error."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def answer_of(work: Callable[[], Any]) -> Any:
    """What a child finds out; this process opens no database, which a fork would not survive."""
    reader, writer = os.pipe()
    pid = forked(lambda: os.write(writer, json.dumps(work()).encode()))
    os.close(writer)
    with os.fdopen(reader) as said:
        text = said.read()
    assert ended(pid) == 0
    return json.loads(text)


def keep(config: Path, labels: int, steps: Path, effects: Path, last: int = 0) -> None:
    """A scheduler until so many labels are judged; notes each step, and kills itself after the last (0: after none)."""
    step = os.open(steps, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    effect = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    pushed = Tables.push
    taken = 0

    def note(what: str) -> None:
        nonlocal taken
        os.write(step, f"{what}\n".encode())
        taken += 1
        if taken == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def push(self: Tables, operations: Iterable[Operation]) -> Iterator[Receipt]:
        for receipt in pushed(self, operations):
            done = receipt.operation
            os.write(effect, f"{done.kind} {done.key} {done.digest} {receipt.changed}\n".encode())
            yield receipt

    Tables.push = push  # type: ignore[method-assign]
    note("start")
    (project,) = projects_of([config])
    loops = Loops(
        [project],
        lambda event, name, said: print(event, dict(said), file=sys.stderr) if "error" in said else note(event),
        lambda what, done, total: note(what),
    )
    loops.start()
    with Store(project.address) as store:
        while True:
            cycle = store.last_cycle(NAME)
            if cycle is not None and cycle.metrics["labels"] == labels and not store.pending(NAME):
                break
            assert loops.alive
            time.sleep(0.02)
    note("idle")
    assert loops.stop()


def run_once(config: Path) -> None:
    with opened(config) as given:
        run_if_changed(*given)


def found(url: str) -> dict[str, Any]:
    with Store(url) as store:
        cycles = [each.metrics["labels"] for each in store.cycles(NAME)]
        return {"cycles": cycles, "pending": len(store.pending(NAME))}


def crash(folder: Path, url: str, kills: int, seed: int) -> dict[str, Any]:
    """Kill schedulers until `kills` of them were hit; what went wrong, and where they were hit."""
    config, rng = make_project(folder, url), random.Random(seed)
    steps, effects = folder / "steps", folder / "effects"
    began, rounds = time.monotonic(), 0
    assert ended(forked(lambda: keep(config, len(FIRST), steps, effects))) == 0
    taken, lengths, hit, missed = 0, [0.0], Counter[str](), 0
    lost: list[str] = []
    twice: list[str] = []
    while hit.total() < kills:
        rounds += 1
        labels = len(FIRST) + rounds
        write_answers(folder, rounds)
        effects.unlink(missing_ok=True)
        if rounds > 2:  # two are left in peace, to measure
            for _ in range(min(rng.choice((1, 1, 2, 3)), kills - hit.total())):
                steps.unlink(missing_ok=True)
                last = rng.randint(1, taken) if rng.random() < 0.5 else 0
                pid = forked(lambda labels=labels, last=last: keep(config, labels, steps, effects, last))  # type: ignore[misc]
                if not last:
                    time.sleep(rng.uniform(0, max(lengths)))
                    os.kill(pid, signal.SIGKILL)
                if ended(pid) == -signal.SIGKILL:
                    hit[steps.read_text().split("\n")[-2] if steps.exists() else "before start"] += 1
                else:
                    missed += 1
        steps.unlink(missing_ok=True)
        start = time.monotonic()
        if ended(forked(lambda labels=labels: keep(config, labels, steps, effects))) != 0:  # type: ignore[misc]
            lost.append(f"round {rounds}: the scheduler after the kills failed")
        if rounds <= 2:
            lengths.append(time.monotonic() - start)
            taken = len(steps.read_text().splitlines())
        now = answer_of(lambda: found(url))
        if now["cycles"][-1:] != [len(FIRST) + rounds] or now["pending"]:
            lost.append(f"round {rounds}: {now['pending']} pending, last cycle {now['cycles'][-1:]}")
        if len(now["cycles"]) != rounds + 1:
            twice.append(f"round {rounds}: {len(now['cycles'])} cycles in all")
        changes = Counter(line.rsplit(" ", 1)[0] for line in effects.read_text().splitlines() if line[-2:] != " 0")
        twice += [f"round {rounds}: {operation} took effect {n} times" for operation, n in changes.items() if n > 1]
    return {
        "kills": hit.total(),
        "rounds": rounds,
        "missed": missed,
        "steps": dict(hit),
        "lost": lost,
        "twice": twice,
        "same": output(folder) == undisturbed(folder, rounds),
        "seconds": round(time.monotonic() - began, 1),
        "undisturbed seconds": round(max(lengths), 2),
    }


def output(folder: Path) -> dict[str, bytes]:
    """Everything the platform shows; a file whose name begins with a dot is one that a killed process was writing."""
    root = folder / "hitl-output"
    files = [path for path in root.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def undisturbed(folder: Path, rounds: int) -> dict[str, bytes]:
    """What the platform shows when the same answers come one after the other and nobody is killed."""
    twin = folder.with_name(f"{folder.name}-twin")
    config = make_project(twin, f"sqlite:///{twin}/hitl.db")

    def all_rounds() -> None:
        for done in range(rounds + 1):
            write_answers(twin, done)
            run_once(config)

    assert ended(forked(all_rounds)) == 0
    return output(twin)


if __name__ == "__main__":
    warm = Path(sys.argv[1]).with_name("warm")
    run_once(make_project(warm, f"sqlite:///{warm}/hitl.db"))  # compiled code is inherited
    print(json.dumps(crash(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
