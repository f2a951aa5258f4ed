"""Hostile bytes for all that reads what others write, in child processes: only errors of ours, little memory, no hang.

    python -m tests.bench.trust.fuzz [--minutes 10] [--only jsonl] [--seed 0] [--save]

A target reads one case; its cases are files that are well, changed at random. A child takes one case after the other
and says which it begins. Where it dies, hangs or raises anything foreign, the case is kept with its number (the same
number is the same case) and a new child goes on behind it. A new target is one more entry of TARGETS: what it begins
with, and what reads it.
"""

from __future__ import annotations

import os
import random
import resource
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from tests.bench import results
from tests.bench.trust import answers, hostile

ROOT = Path(__file__).parents[3]
LONGEST = 20.0
"""Seconds after which a case hangs."""

LOADING = 120.0
"""Seconds that the first case of a child may take, with all that is loaded for it."""

MOST = 1 << 30
"""Bytes that a child may have in memory, all it has imported included."""


@dataclass(frozen=True)
class Target:
    """What is read, from which bytes that are well or known to be hostile, by what, and how they are changed."""

    seeds: Callable[[], list[bytes]]
    read: Callable[[Path], None]
    ending: str
    mutated: Callable[[bytes, list[bytes], random.Random], bytes] = hostile.mutated
    names_the_file: bool = True


TARGETS: Mapping[str, Target] = {
    name: Target(seeds, hostile.read, f".{name}") for name, seeds in hostile.SEEDS.items()
} | {
    "project": Target(hostile.SEEDS["csv"], hostile.pull, ".csv"),
    "label studio": Target(answers.seeds, answers.cycle, ".json", answers.changed, names_the_file=False),
}


@dataclass
class Result:
    """How the cases of one target ended."""

    cases: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    memory: int = 0
    seconds: float = 0.0

    def line(self, name: str) -> str:
        """A row of the table."""
        return (
            f"{name:<12} {self.cases:>8,} {self.ended['read']:>8,} {self.ended['refused']:>8,} "
            f"{len(self.wrong):>6} {self.memory / 2**20:>8,.0f} {self.seconds:>8,.0f}"
        )


HEAD = f"{'target':<12} {'cases':>8} {'read':>8} {'refused':>8} {'wrong':>6} {'MiB':>8} {'s':>8}"


def case(target: Target, seed: int, number: int) -> bytes:
    """The bytes of a case: first those that begin, then changes of them."""
    seeds = _seeds(target)
    if number < len(seeds):
        return seeds[number]
    chance = random.Random(f"{seed} {number}")
    return target.mutated(chance.choice(seeds), seeds, chance)


@cache
def _seeds(target: Target) -> list[bytes]:
    return target.seeds()


def fuzz(name: str, seconds: float, seed: int, cases: int | None = None) -> Result:
    """Cases of a target for so long, or so many."""
    result, began = Result(), time.monotonic()
    while time.monotonic() - began < seconds and (cases is None or result.cases < cases):
        _one_child(name, began + seconds, seed, cases, result)
    result.seconds = time.monotonic() - began
    return result


def _one_child(name: str, until: float, seed: int, cases: int | None, result: Result) -> None:
    command = [sys.executable, "-m", "tests.bench.trust.fuzz", "--child", name, "--seed", str(seed)]
    command += ["--begin", str(result.cases)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout is not None
        patience = LOADING
        while True:
            ready, _, _ = select.select([child.stdout], [], [], patience)
            patience = LONGEST
            line = child.stdout.readline() if ready else "hung\n"
            what, _, said = line.rstrip("\n").partition(" ")
            if what in ("", "hung"):
                child.kill()
                how = "hangs" if what else f"ends the process ({child.wait()})"
                result.wrong.append(f"{name} {result.cases}: {how}")
                result.cases += 1
                return
            memory, _, said = said.partition(" ")
            result.cases += 1
            result.ended[what] += 1
            result.memory = max(result.memory, int(memory))
            too_much = int(memory) > MOST
            if what == "foreign" or too_much:
                result.wrong.append(f"{name} {result.cases - 1}: {said or 'too much memory'}")
            if too_much or time.monotonic() > until or (cases is not None and result.cases >= cases):
                child.kill()
                return


def child(name: str, seed: int, begin: int) -> None:
    """Take one case after the other, and say how each ended and how much memory was in use at most."""
    from hitl.errors import HitlError

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (4 * MOST, 4 * MOST))
    target, number = TARGETS[name], begin
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"annotations{target.ending}"
        while True:
            path.write_bytes(case(target, seed, number))
            what, said = "read", ""
            try:
                target.read(path)
            except HitlError as error:
                what = "refused"
                if target.names_the_file and path.name not in str(error) and "annotations" not in str(error):
                    what, said = "foreign", f"does not name the file: {str(error)[:200]!r}"
            except BaseException as error:  # this is what is looked for
                what, said = "foreign", f"{type(error).__name__}: {str(error)[:200]!r}"
            print(what, results.memory(), " ".join(said.split()), flush=True)
            number += 1


def main(arguments: Sequence[str] | None = None) -> int:
    options = results.options(__doc__, arguments, minutes=10.0, only=list(TARGETS), seed=0, child=None, begin=0)
    if options.child:
        child(options.child, options.seed, options.begin)
    page, wrong = results.Page(), list[str]()
    page.tell(f"{datetime.now(UTC):%Y-%m-%d}", "", HEAD)
    for name in options.only:
        result = fuzz(name, options.minutes * 60 / len(options.only), options.seed)
        wrong += result.wrong
        page.tell(result.line(name))
    page.tell("", f"{len(wrong)} wrong", *wrong)
    if options.save:
        made = f"trust.fuzz --minutes {options.minutes:g} --seed {options.seed} --save"
        page.save("trust_fuzz", {"wrong": wrong}, made)
    return int(bool(wrong))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
