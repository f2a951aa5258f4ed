"""Where the last figures of the benchmarks are kept: docs/benchmarks/, text for people and JSON for tests."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[3] / "docs" / "benchmarks"


def options(doc: str | None, arguments: Sequence[str] | None, /, **defaults: Any) -> argparse.Namespace:
    """Parse --save and an option for each default: a flag if False, several values if a sequence, text if None."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="write the figures to docs/benchmarks/")
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(flag, action="store_true")
        elif isinstance(default, Sequence) and not isinstance(default, str):
            parser.add_argument(flag, nargs="+", type=type(default[0]) if default else str, default=list(default))
        else:
            parser.add_argument(flag, type=str if default is None else type(default), default=default)
    return parser.parse_args(arguments)


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
