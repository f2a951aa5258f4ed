"""Where the last figures of the benchmarks are kept: docs/benchmarks/, text for people and JSON for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[3] / "docs" / "benchmarks"


def save(name: str, lines: Sequence[str], figures: Mapping[str, Any], command: str | None = None) -> None:
    """Write <name>.txt and <name>.json; `command` says what made them: default: bench_<name> --save."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = f"$ python -m tests.bench.{command or f'bench_{name} --save'}"
    (FOLDER / f"{name}.txt").write_text("\n".join([made, *lines]) + "\n")
    (FOLDER / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n")


def held(bars: Sequence[tuple[str, str, bool]]) -> list[str]:
    """A line for each bar: what is asked, what was found, and whether it holds."""
    return ["", *(f"{'holds' if ok else 'FAILS'}  {asked}: {found}" for asked, found, ok in bars)]


def load(name: str) -> dict[str, Any]:
    """The figures last saved."""
    figures: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return figures
