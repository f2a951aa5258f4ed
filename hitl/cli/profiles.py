"""Show profiles of files or of a project, as in `annotators` and `models`: as tables, files or JSON."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hitl.cli import show
from hitl.cli.evidence import Given, files_for, require_unread
from hitl.errors import BadEvidence, BadSettings

if TYPE_CHECKING:
    import pandas as pd

    from hitl.consensus import Consensus
    from hitl.evidence import Evidence

UNKNOWN = "–"


@dataclass(frozen=True)
class Profiler:
    """A kind of profile, and how to show it.

    Attributes:
        command: its command, and the key of its file in JSON.
        fit: makes the profile of evidence, given a consensus.
        frame: returns everything as a table; data: returns everything for JSON (`plain` is applied to it).
        show: prints tables and lines for a question ("" for files), with at most this many rows.
        needs_models: True if the profile is empty without probabilities of models.
    """

    command: str
    fit: Callable[[Evidence, Consensus], Any]
    frame: Callable[[Any], pd.DataFrame]
    data: Callable[[Any], dict[str, Any]]
    show: Callable[[str, Any, int], None]
    needs_models: bool = False


def profile(
    kind: Profiler, given: Given, consensus: Path | None, output: Path | None, rows: int, as_json: bool
) -> None:
    """Make the profile of the given files, or of each question of the project, and show it."""
    import pyarrow as pa

    from hitl.tables.files import require_writable, write_table

    require_writable(output)
    if given.annotations is None:
        given.need_project(kind.command, consensus=consensus)
        project, by, judged = _of_project(kind, given.config, output, as_json)
    else:
        project, by, judged = _of_files(kind, given, consensus, output)
    found = {name: kind.fit(evidence, result) for name, (evidence, result) in judged.items()}
    written = files_for(output, found)
    for name, path in written.items():
        write_table(path, pa.Table.from_pandas(kind.frame(found[name]), preserve_index=False))
    if as_json:
        questions = {
            name: plain({"method": result.fit.method, **kind.data(found[name])}) for name, (_, result) in judged.items()
        }
        shown = {name or kind.command: str(path) for name, path in written.items()}
        of_all = questions[""] if project is None else {"project": project, "questions": questions}
        show.as_json(of_all | {"written": shown})
        return
    show.line(by)
    for name, each in found.items():
        kind.show(name, each, rows)
    show.wrote(written.values())


Judged = tuple[str | None, str, dict[str, tuple["Evidence", "Consensus"]]]
"""Project (None: files), source of the consensus in words, and question ("" for files) -> evidence and consensus."""


def _of_files(kind: Profiler, given: Given, consensus: Path | None, output: Path | None) -> Judged:
    from hitl.tables.files import require_distinct

    require_distinct([output], [*given.files, *([consensus] if consensus else [])])
    if kind.needs_models and not given.probabilities:
        raise BadSettings(f"{kind.command}: --probabilities is needed, for instance --probabilities resnet=probs.csv")
    evidence, result = judged_files(kind.command, given, consensus)
    return None, f"{evidence}; judged by {result.fit.method}", {"": (evidence, result)}


def judged_files(command: str, given: Given, saved: Path | None) -> tuple[Evidence, Consensus]:
    """Return the evidence of the files, and a saved or fitted consensus. Raises BadSettings if both are requested."""
    from hitl.consensus import Consensus

    if (given.method is not None or given.paper) and saved is not None:
        raise BadSettings(f"{command}: --method and --consensus exclude each other; a saved consensus has its method")
    evidence = given.evidence()
    return evidence, Consensus.load(saved) if saved else given.consensus(evidence)


def _of_project(kind: Profiler, config: Path, output: Path | None, as_json: bool) -> Judged:
    """Use the consensus of the last run if nothing stored has changed since."""
    from hitl.inputs_digest import stored_results
    from hitl.project import opened, stored_evidence

    with opened(config) as (settings, store, connector), show.progress(as_json) as progress:
        evidence = stored_evidence(settings, store, connector.questions())
        if kind.needs_models:
            evidence = {name: known for name, known in evidence.items() if known.probabilities}
            if not evidence:
                raise BadEvidence(
                    f"project {settings.name!r}: no model's probabilities; expected probabilities_<model>.csv in a "
                    "folder of tables, predictions in Label Studio, or a file that [models] of hitl.toml names"
                )
        require_unread(config, settings, files_for(output, evidence).values())
        results, of_cycle = stored_results(settings, store, evidence, progress)
    by = "judged by the last cycle" if of_cycle else "combined now: something changed since the last cycle"
    return settings.name, by, {name: (known, results[name]) for name, known in evidence.items()}


def plain(value: Any) -> Any:
    """Convert to JSON values: Python's own numbers, and null for NaN and infinity."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def figure(value: float, form: str = ".2f") -> str:
    """Format a number, or a dash if it is unknown."""
    return format(value, form) if math.isfinite(value) else UNKNOWN


def percent(share: float, digits: int = 1) -> str:
    """Format a share in %, or a dash if it is unknown."""
    return f"{share * 100:.{digits}f} %" if math.isfinite(share) else UNKNOWN


def within(share: float, low: float, high: float, digits: int = 1) -> str:
    """Format a share in % with its interval, or a dash if it is unknown."""
    if not math.isfinite(share):
        return UNKNOWN
    return f"{percent(share, digits)} ({figure(low * 100, f'.{digits}f')}–{figure(high * 100, f'.{digits}f')})"
