"""What `annotators` and `models` share: a profile of files or of a project, shown, written, or printed as JSON."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hitl.cli import show
from hitl.cli.evidence import Given, of_question
from hitl.errors import BadEvidence, BadSettings

if TYPE_CHECKING:
    import pandas as pd

    from hitl.consensus import Consensus
    from hitl.evidence import Evidence

UNKNOWN = "–"


class Profiler(Protocol):
    """One kind of profile.

    Attributes:
        command: its command, and the key of its file in JSON.
        needs_models: whether it says nothing without probabilities of models.
    """

    command: str
    needs_models: bool

    def fit(self, evidence: Evidence, consensus: Consensus) -> Any:
        """The profile of this evidence, judged by this consensus."""
        ...

    def frame(self, found: Any) -> pd.DataFrame:
        """Everything as a table."""
        ...

    def data(self, found: Any) -> dict[str, Any]:
        """Everything for JSON; `plain` is applied to it."""
        ...

    def show(self, question: str, found: Any, rows: int) -> None:
        """Tables and lines on the terminal; `question` is "" for files."""
        ...


def profile(
    kind: Profiler, given: Given, consensus: Path | None, output: Path | None, rows: int, as_json: bool
) -> None:
    """Make the profile of the files given, or of each question of the project, and show it."""
    if given.annotations is None:
        given.need_project(kind.command, consensus=consensus)
        _project(kind, given.config, output, rows, as_json)
    else:
        _files(kind, given, consensus, output, rows, as_json)


def _files(kind: Profiler, given: Given, consensus: Path | None, output: Path | None, rows: int, as_json: bool) -> None:
    evidence = given.evidence()
    if kind.needs_models and not evidence.probabilities:
        raise BadSettings(f"{kind.command}: --probabilities is needed, for instance --probabilities resnet=probs.csv")
    by = _judged(kind.command, given, evidence, consensus, output)
    found = kind.fit(evidence, by)
    _write(kind, found, output)
    if as_json:
        written = {} if output is None else {kind.command: str(output)}
        show.as_json(_data(kind, found, by) | {"written": written})
        return
    show.line(f"{evidence!r}, judged by {by.fit.method}")
    kind.show("", found, rows)
    if output is not None:
        show.line(f"wrote {output}")


def _project(kind: Profiler, config: Path, output: Path | None, rows: int, as_json: bool) -> None:
    """By the consensus of the last cycle where that is still over what is stored."""
    from hitl.files import require_writable
    from hitl.project import opened, stored_evidence, stored_results

    require_writable(output)
    with opened(config) as (settings, store, connector), show.progress(as_json) as progress:
        evidence = stored_evidence(store, settings.name, connector.questions())
        if kind.needs_models:
            evidence = {name: known for name, known in evidence.items() if known.probabilities}
            if not evidence:
                raise BadEvidence(
                    f"project {settings.name!r} has no model's probabilities; in a folder of tables they are "
                    "probabilities_<model>.csv, in Label Studio predictions"
                )
        results, of_cycle = stored_results(settings, store, evidence, progress)
    found = {name: kind.fit(evidence[name], results[name]) for name in evidence}
    written = {} if output is None else {name: of_question(output, name, len(found)) for name in found}
    for name, path in written.items():
        _write(kind, found[name], path)
    if as_json:
        questions = {name: _data(kind, each, results[name]) for name, each in found.items()}
        shown = {name: str(path) for name, path in written.items()}
        show.as_json({"project": settings.name, "questions": questions, "written": shown})
        return
    show.line("judged by the last cycle" if of_cycle else "combined now: something changed since the last cycle")
    for name, each in found.items():
        kind.show(name, each, rows)
    for path in written.values():
        show.line(f"wrote {path}")


def _judged(command: str, given: Given, evidence: Evidence, consensus: Path | None, output: Path | None) -> Consensus:
    """The saved consensus, or one made here by the method. Raises BadSettings for both, or an output over an input."""
    from hitl.consensus import Consensus
    from hitl.files import require_distinct, require_writable
    from hitl.models.registry import combiner

    require_writable(output)
    require_distinct([output], [*given.files, *([consensus] if consensus else [])])
    if given.method is not None and consensus is not None:
        raise BadSettings(
            f"{command}: --method and --consensus exclude each other; a saved consensus was judged already"
        )
    if consensus is not None:
        return Consensus.load(consensus)
    return combiner(given.method or "default").fit(evidence)


def _write(kind: Profiler, found: Any, output: Path | None) -> None:
    import pyarrow as pa

    from hitl.files import write_table

    if output is not None:
        write_table(output, pa.Table.from_pandas(kind.frame(found), preserve_index=False))


def _data(kind: Profiler, found: Any, by: Consensus) -> dict[str, Any]:
    data: dict[str, Any] = plain({"method": by.fit.method, **kind.data(found)})
    return data


def plain(value: Any) -> Any:
    """JSON values: Python's own numbers, and null for what is not a number."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def percent(share: float, digits: int = 1) -> str:
    """A share in %; a dash where it is not known."""
    return f"{share * 100:.{digits}f} %" if math.isfinite(share) else UNKNOWN
