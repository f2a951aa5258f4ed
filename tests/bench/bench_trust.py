"""The longest proofs: what is killed after every step, whole days and a whole week on a real Label Studio.

    python -m tests.bench.bench_trust [--save] [-- MORE OF PYTEST]

These are the tests marked `trust`; `make test` runs a shorter form of each. The exit code is that of pytest.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

from tests.bench import results

ROOT = Path(__file__).parents[2]
Found = tuple[str, str, float]
"""A test, how it ended, and its seconds."""


def ended(report: Path) -> Iterator[Found]:
    """The tests of a JUnit report."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        how = next((kind for kind in ("failure", "error", "skipped") if case.find(kind) is not None), "passed")
        yield f"{case.get('classname')}.{case.get('name')}".removeprefix("tests."), how, float(case.get("time", 0))


def lines_of(found: Sequence[Found], only: Sequence[str] = ()) -> list[str]:
    """When they ran, a line for each with its seconds, and how many passed; `only`: where others were not run."""
    passed = sum(how == "passed" for _, how, _ in found)
    rows = [f"{seconds:8.1f} s  {how:<8} {name}" for name, how, seconds in found]
    whole = sum(seconds for _, _, seconds in found)
    part = f"; only {' '.join(only)}, the others were not run" if only else ""
    head = f"{datetime.now(UTC):%Y-%m-%d}, one process{part}"
    return [head, "", *rows, "", f"{passed} of {len(found)} passed, {whole:.0f} s"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them and print the lines; with --save also write docs/benchmarks/trust.*."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("more", nargs="*")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-m", "trust", f"--junit-xml={report}", *chosen.more]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        found = list(ended(report))
    lines = lines_of(found, chosen.more)
    print("\n".join(lines))
    if chosen.save:
        results.save("trust", lines, {name: {"ended": how, "seconds": seconds} for name, how, seconds in found})
    return code


if __name__ == "__main__":
    sys.exit(main())
