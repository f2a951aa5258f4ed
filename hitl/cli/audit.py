"""Define `hitl audit`, which compares platform and store."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from hitl.cli import show
from hitl.cli.options import HERE, Config, Json, examples

EXAMPLES = examples("hitl audit", "hitl audit --repair", "hitl audit --json")
SHOWN = 20
"""Maximum differences shown in words. --json has all of them."""


def audit(
    config: Config = HERE,
    repair: Annotated[bool, typer.Option("--repair", help="Mend what differs, and compare again.")] = False,
    as_json: Json = False,
) -> None:
    """Compare platform and store: annotations, predictions, and all that was pushed. Exit code 1: they differ."""
    from hitl import audit as audits
    from hitl.project import opened

    with opened(config) as (settings, store, connector), show.progress(as_json) as progress:
        found = audits.audit(settings, store, connector, progress)
        before = len(found.differences)
        if repair and not found.agrees:
            found = audits.repair(settings, store, connector, found, progress)
    data = {
        "agrees": found.agrees,
        "compared": dict(found.compared),
        "mended": before - len(found.differences),
        "differences": [{**asdict(one), "why": show.without_passwords(one.why)} for one in found.differences],
        "left_out": show.without_passwords(found.left_out),
    }
    lines = [*found.left_out]
    lines += [f"{one.what} {one.key}: {one.why}".replace("  ", " ") for one in found.differences[:SHOWN]]
    if len(found.differences) > SHOWN:
        lines.append(f"and {len(found.differences) - SHOWN:,} more")
    compared = ", ".join(f"{number:,} {name}" for name, number in found.compared.items())
    cure = "the next `hitl run` mends what it plans anew" if repair else "`hitl audit --repair` mends it"
    said = "platform and store agree" if found.agrees else f"platform and store differ; {cure}"
    show.result(data, [*lines, f"compared {compared}: {said}"], as_json)
    if not found.agrees:
        raise typer.Exit(1)
