"""Define `hitl replay`, which computes how many labels each policy would have needed.

Annotators are recorded or simulated.
"""

from __future__ import annotations

import math
import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hitl.active.registry import POLICIES
from hitl.cli import options as flags
from hitl.cli import show
from hitl.cli.evidence import Given
from hitl.cli.options import Json, grouped, one_of, opt
from hitl.cli.replay_people import crew_of, groups_of
from hitl.errors import BadSettings, BadTable, HitlError
from hitl.formatting import listed

if TYPE_CHECKING:
    from hitl.active.replay.experiments import Source, Spent
    from hitl.active.replay.replay import Track
    from hitl.evidence import Evidence
    from hitl.report.replay import ReplayReport

Tracks = Mapping[str, "tuple[Track, ...]"]
"""Strategy -> tracks, one per seed."""

PICTURES = (".html", ".svg")


@dataclass(frozen=True)
class Asked:
    """Options of the comparison."""

    policy: Annotated[
        list[str] | None,
        one_of("Policy, one of: {}; default: expected-gain. Repeat to compare.", POLICIES, "--policy"),
    ] = None
    learn: Annotated[
        str | None,
        opt("Also replay each policy with a model that learns from --features: logistic, or module:name."),
    ] = None
    groups: Annotated[
        Path | None,
        opt("With --learn: table item, group. Items of a group (such as near-duplicates) stay in one fold."),
    ] = None
    simulate: Annotated[
        list[str] | None,
        opt(
            "KIND=HOW MANY[:LOWEST-HIGHEST accuracy] annotators instead of recorded ones: good, random, constant, "
            "adversary, expert, newcomer. Repeat."
        ),
    ] = None
    seeds: Annotated[int, opt("Replays per policy.", min=1)] = 5
    seed: Annotated[int, opt("Seed of the first replay.", min=0)] = 0
    batch: Annotated[int | None, opt("Questions per round; default: 1 % of all.", min=1)] = None
    labels: Annotated[int | None, opt("Maximum number of labels.", min=1)] = None
    target: Annotated[
        list[float] | None,
        opt(
            "Accuracy to reach; default: half a point, or one item, below that with all labels. Repeat for more.",
            min=0,
            max=1,
        ),
    ] = None
    stop: Annotated[
        float | None,
        opt("Also show where a project with this budget.target_accuracy would have stopped, and how accurate."),
    ] = None
    gold: Annotated[int, opt("With --stop: number of gold items, drawn at random.", min=0)] = 0
    certify: Annotated[
        int, opt("With --stop: audit at most so many labels there, to prove the accuracy at 95 %.", min=0)
    ] = 0
    confidence: Annotated[float, opt("Confidence at which an item is done (budget.target_confidence); 1: never.")] = 1.0
    capacity: Annotated[int | None, opt("Maximum questions per annotator and round.", min=0)] = None
    people: Annotated[Path | None, opt("Table: annotator, cost, capacity.")] = None
    delay: Annotated[float, opt("Mean number of rounds until an answer arrives.", min=0)] = 0.0
    skip: Annotated[float, opt("Share of questions that are skipped.", min=0)] = 0.0
    workers: Annotated[int | None, opt("Processes; default: one per core.", min=1)] = None
    engine: Annotated[Literal["here", "dask"], opt("Run on processes of this machine or on Dask.")] = "here"
    scheduler: flags.Scheduler = None

    def __post_init__(self) -> None:
        expected = {
            "confidence": (0 < self.confidence <= 1, "a probability in (0, 1]"),
            "skip": (0 <= self.skip < 1, "a share of the questions, in [0, 1)"),
            "stop": (self.stop is None or 0 < self.stop < 1, "an accuracy above 0 and below 1"),
        }
        for name, (is_right, what) in expected.items():
            if not is_right:
                raise BadSettings(f"--{name} is {getattr(self, name):g}; expected {what}")
        for name, other in (("gold", "stop"), ("certify", "stop"), ("groups", "learn")):
            if getattr(self, name) and getattr(self, other) is None:
                raise BadSettings(f"--{name}: it needs --{other}")


@grouped
def replay(
    given: Given,
    asked: Asked,
    output: Annotated[
        list[Path] | None,
        opt(
            "File to write: a page (.html), a figure (.svg) or a table of all steps (.csv, ...). Repeat for more.",
            "--output",
            "-o",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Replay recorded labels, or simulate annotators, to see how many labels each policy would have saved.

    --truth is used only for scoring; policies see no truth except that of --gold items.
    """
    from hitl.active.replay import strategies as known
    from hitl.active.replay.experiments import Recording, Simulation
    from hitl.active.replay.replay import StopRule
    from hitl.active.replay.simulated_annotators import names_of
    from hitl.models.combiner import seen_by, used
    from hitl.models.registry import combiner

    crowd, outputs, method = groups_of(asked.simulate or ()), output or [], given.method or "default"
    evidence = _evidence(given, bool(crowd))
    if asked.learn is not None and evidence.features is None:
        raise BadSettings("--learn needs --features, which the model learns from")
    if evidence.annotations.anonymous is not None and not crowd and (asked.people is not None or asked.capacity):
        raise BadSettings("--people and --capacity need an annotator in every row, but some rows have none")
    _require_writable(outputs, [*given.files, *(path for path in (asked.people, asked.groups) if path)])
    doubt = known.doubt_about_truth(evidence)
    if doubt is not None:
        show.warning(doubt)
    source: Source = Simulation(evidence, crowd) if crowd else Recording(evidence)
    replays = known.strategies(
        evidence,
        dict.fromkeys(asked.policy or ("expected-gain",)),
        method,
        batch=asked.batch,
        labels=asked.labels,
        confidence=asked.confidence,
        crew=crew_of(asked.people, asked.capacity, names_of(crowd) if crowd else evidence.annotations.annotators),
        delay=asked.delay,
        skip=asked.skip,
        learn=asked.learn,
        groups=_near_duplicates(asked.groups, given.item, frozenset(evidence.annotations.items)),
        stop=None if asked.stop is None else StopRule(asked.stop, asked.gold, asked.certify),
    )
    if asked.target or crowd:  # otherwise `near_all_labels` fits all labels, and warns about unused evidence
        judge = combiner(method)
        used(judge, seen_by(judge, evidence))
    targets = asked.target or (known.SIMULATED_TARGET if crowd else known.near_all_labels(evidence, method),)
    tracks = _run(source, replays, asked, as_json)
    annotations = evidence.annotations
    items = f"{show.counted(annotations.n_items, 'item')}; classes: {listed(annotations.classes)}"
    subject = f"simulated annotators on {items}" if crowd else f"recorded: {annotations}"
    report = _report(f"{subject}; {show.counted(asked.seeds, 'seed')}; combined by {method}", asked, tracks, targets)
    for path in outputs:
        _write(report, tracks, path)
    data = {"method": method, "seeds": asked.seeds, "seed": asked.seed, "strategies": _strategies(tracks, targets)}
    lines = [*_lines(report, asked, tracks), *show.wrote(outputs)]
    show.result(data | {"written": [str(path) for path in outputs]}, lines, as_json)


def _evidence(given: Given, simulated: bool) -> Evidence:
    """Read the evidence from the files. For simulated annotators, read items with truth, and no annotations."""
    if given.truth is None or given.paper:
        raise BadSettings("replay: expected --truth, a table of known labels (item, label), and no --paper")
    if simulated == (given.annotations is not None):
        raise BadSettings("replay: give a file of annotations or --simulate, not both")
    if not simulated:
        return given.evidence()
    evidence = replace(given, annotations=given.truth, anonymous=True).evidence()
    return replace(evidence, annotations=evidence.annotations.select(evidence.annotations.item < 0))


def _near_duplicates(path: Path | None, item: str, items: frozenset[Any]) -> dict[Any, str] | None:
    """Return item -> group of near-duplicates, for items that have a group. Raises BadTable."""
    from hitl.tables.columns import require_columns
    from hitl.tables.read import read_table

    if path is None:
        return None
    table = read_table(path, [item, "group"])
    require_columns(table, [item, "group"], str(path))
    pairs = zip(table.column(item).to_pylist(), table.column("group").to_pylist(), strict=True)
    groups = {name: group for name, group in pairs if name and group}
    if items.isdisjoint(groups):
        raise BadTable(f"{path}: none of its items is recorded; expected names as {min(map(str, items))!r}")
    return groups


def _run(source: Source, replays: Mapping[str, Any], asked: Asked, quiet: bool) -> Tracks:
    from concurrent.futures.process import BrokenProcessPool

    from hitl.active.replay.experiments import run_trials

    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    workers = asked.workers or min(cores, asked.seeds * len(replays))
    engine = flags.Engine(asked.engine, asked.scheduler)
    with show.progress(quiet) as progress, warnings.catch_warnings(), engine.executor(workers) as executor:
        warnings.filterwarnings("ignore", "Sending large graph")  # a warning of Dask

        def tell(done: int, of: int) -> None:
            progress("replays", done, of)

        try:
            return run_trials(source, replays, asked.seeds, asked.seed, workers, tell, executor)
        except BrokenProcessPool:
            raise HitlError("replay: a worker process died, perhaps because memory ran out; try --workers 1") from None


def _require_writable(outputs: Sequence[Path], read: Sequence[Path]) -> None:
    from hitl.tables.read import format_of
    from hitl.tables.write import FORMATS, require_distinct, require_place

    for path in outputs:
        try:
            if path.suffix.lower() not in PICTURES:
                format_of(path)
        except BadTable:
            raise BadTable(
                f"{path}: unknown format {path.suffix!r}; expected {PICTURES[0]} (a page), {PICTURES[1]} (a picture), "
                f"or every step as a table: {', '.join(FORMATS)} (.gz allowed)"
            ) from None
    require_place(*outputs)
    require_distinct(outputs, read)


# -- output ------------------------------------------------------------------------------------------------


def _report(subtitle: str, asked: Asked, tracks: Tracks, targets: Sequence[float]) -> ReplayReport:
    from hitl.active.replay.experiments import FEW, band, spent_to_reach
    from hitl.active.replay.strategies import EVEN
    from hitl.report.contents import Curve
    from hitl.report.replay import ReplayReport, Row

    def curves(over_cost: bool) -> tuple[Curve, ...]:
        bands = {name: band(several, over_cost) for name, several in tracks.items()}
        return tuple(Curve(name, one.x, one.middle, one.low, one.high) for name, one in bands.items())

    def saving(own: Spent, even: Spent) -> str:
        ratio = _times_fewer(own, even)
        if not ratio:
            return "–"
        return f"{ratio:.2f} × fewer labels" if ratio >= 1 else f"{1 / ratio:.2f} × more labels"

    rows = []
    for target in targets:
        even = spent_to_reach(tracks[EVEN], target)
        for name, several in tracks.items():
            own = spent_to_reach(several, target)
            labels, cost = _range(own.labels, own.reached, 0), _range(own.cost, own.reached, 2)
            rows.append(Row(show.percent(target), name, labels, cost, "" if name == EVEN else saving(own, even)))
    seeds = show.counted(asked.seeds, "seed")
    costly = any((track.cost != track.labels).any() for several in tracks.values() for track in several)
    return ReplayReport(
        title="Replay: accuracy against labels and cost" if costly else "Replay: accuracy against labels",
        subtitle=subtitle,
        by_labels=curves(over_cost=False),
        by_cost=curves(over_cost=True) if costly else (),
        rows=tuple(rows),
        band=f"lowest to highest of {seeds}" if asked.seeds < FEW else f"10th to 90th in a hundred of {seeds}",
        command=shlex.join(["hitl", *sys.argv[1:]]),
    )


def _range(spent: tuple[float, float, float], reached: int, digits: int) -> str:
    """Format median, lowest and highest as "median (lowest–highest)", or "never" if the target was not reached."""
    if not reached:
        return "never"
    middle, low, high = (f"{round(value, digits):,.12g}" if value < math.inf else "never" for value in spent)
    return middle if middle == low == high else f"{middle} ({low}–{high})"


def _times_fewer(own: Spent, even: Spent) -> float | None:
    """Return how many times as many labels `even` needed as `own`, or None if one of them never reached the target."""
    ours, theirs = own.labels[0], even.labels[0]
    return theirs / ours if 0 < ours < math.inf and theirs < math.inf else None


def _lines(report: ReplayReport, asked: Asked, tracks: Tracks) -> Iterator[show.Line]:
    import pandas as pd

    yield report.subtitle
    if asked.stop is None or not asked.gold:
        yield "--truth is used only for scoring; no policy or method sees it"
    else:
        yield "--truth is used for scoring, except for the --gold items, which methods know from the start"
    frame = pd.DataFrame(list(report.rows)).drop(columns=[] if report.by_cost else ["cost"])
    yield show.frame("Labels until the accuracy is reached for good: median (lowest–highest)", frame, len(frame))
    if asked.stop is None:
        return
    rows, below, proofs = [], [], []  # per replay: where it would have stopped, what was believed, proven, and true
    for name, several in tracks.items():
        for rank, at in enumerate(track.stopped for track in several):
            if at is None:
                rows.append((name, rank, "not reached", *[""] * 5))
                continue
            below.append(at.accuracy < asked.stop)
            proofs += [at.corrected < asked.stop] if at.proven else []
            verdict = "below" if below[-1] else "reached"
            proven = f"{'proven' if at.proven else 'not proven'}, {show.percent(at.corrected)} true"
            believed = show.percent(at.believed), show.percent(at.accuracy), verdict
            rows.append((name, rank, f"{at.labels:,}", *believed, f"{at.audited:,}", proven))
    columns = ["strategy", "seed", "labels", "believed", "true", "target", "audited", "after corrections"]
    frame = pd.DataFrame(rows, columns=columns).iloc[:, : None if asked.certify else 6]
    gold = f", {show.counted(asked.gold, 'item')} with known answers" if asked.gold else ", no gold items"
    title = f"Where a project with target_accuracy = {asked.stop:g} would have ended{gold}"
    yield show.frame(title, frame, len(frame))
    yield f"{sum(below)} of {show.counted(len(below), 'run')} that would have ended were below the target"
    if asked.certify:
        yield f"{sum(proofs)} of {show.counted(len(proofs), 'certificate')} proved what was not true; 5 % may"


def _strategies(tracks: Tracks, targets: Sequence[float]) -> dict[str, Any]:
    """Return strategy -> JSON values, with null for seeds that never reached the target."""
    from hitl.active.replay.experiments import spent_to_reach
    from hitl.active.replay.strategies import EVEN

    def needed(several: tuple[Track, ...], target: float) -> dict[str, Any]:
        each = [track.to_reach(target) or (None, None) for track in several]
        ratio = _times_fewer(spent_to_reach(several, target), spent_to_reach(tracks[EVEN], target))
        labels, cost = zip(*each, strict=True)
        return {"accuracy": target, "labels": labels, "cost": cost, "times_fewer": ratio}

    return {
        name: {
            "needed": [needed(several, target) for target in targets],
            "stopped": [None if t.stopped is None else asdict(t.stopped) for t in several],
            "end": [{"labels": int(t.labels[-1]), "accuracy": float(t.accuracy[-1])} for t in several],
        }
        for name, several in tracks.items()
    }


def _write(report: ReplayReport, tracks: Tracks, path: Path) -> None:
    """Write a page, a picture, or a table of every step, depending on the suffix of the file."""
    import pandas as pd
    import pyarrow as pa

    from hitl.report.replay import write_page, write_svg
    from hitl.tables.write import write_table

    suffix = path.suffix.lower()
    if suffix in PICTURES:
        (write_page if suffix == ".html" else write_svg)(report, path)
        return
    steps = {(name, rank): track.frame() for name, several in tracks.items() for rank, track in enumerate(several)}
    frame = pd.concat(steps, names=["strategy", "seed"]).reset_index(["strategy", "seed"])
    write_table(path, pa.Table.from_pandas(frame, preserve_index=False))
