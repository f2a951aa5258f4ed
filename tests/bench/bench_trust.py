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


def ended(report: Path) -> Iterator[tuple[str, str, float]]:
    """The tests of a JUnit report: name, how it ended, seconds."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        how = next((kind for kind in ("failure", "error", "skipped") if case.find(kind) is not None), "passed")
        yield f"{case.get('classname')}.{case.get('name')}".removeprefix("tests."), how, float(case.get("time", 0))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("more", nargs="*")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-m", "trust", f"--junit-xml={report}", *options.more]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        found = list(ended(report))
    part = f"; only {' '.join(options.more)}, the others were not run" if options.more else ""
    page = results.Page()
    page.tell(f"{datetime.now(UTC):%Y-%m-%d}, one process{part}", "")
    page.tell(*(f"{seconds:8.1f} s  {how:<8} {name}" for name, how, seconds in found))
    passed, seconds = sum(how == "passed" for _, how, _ in found), sum(seconds for *_, seconds in found)
    page.tell("", f"{passed} of {len(found)} passed, {seconds:.0f} s")
    if options.save:
        page.save("trust", {name: {"ended": how, "seconds": seconds} for name, how, seconds in found})
    return code


if __name__ == "__main__":
    sys.exit(main())
