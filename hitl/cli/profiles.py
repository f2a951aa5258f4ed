"""Define `hitl annotators` and `hitl models`, which profile annotators and models, in files or in a project."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hitl.cli import show
from hitl.cli.evidence import Given, files_for, require_unread, write_tables
from hitl.cli.options import HERE, Config, Json, Output, SavedConsensus, grouped, opt, share
from hitl.cli.show import UNKNOWN, figure, percent, within
from hitl.errors import BadEvidence, BadSettings
from hitl.formatting import sure

if TYPE_CHECKING:
    import pandas as pd
    from rich.text import Text

    from hitl.active.guarantees.skip_list import ReplayedSkips, SkipList
    from hitl.consensus import Consensus
    from hitl.evidence import Evidence
    from hitl.models.analysis.anchoring import Pulls
    from hitl.models.analysis.annotator_profile import AnnotatorProfiles
    from hitl.models.analysis.model_profile import Account, ModelProfile

WIDE = 100
"""Minimum terminal width, in columns, to show all figures."""

TYPICAL_ERRORS = 2
"""Maximum typical errors per annotator in the printed table. --output and --json have all of them."""


@dataclass(frozen=True)
class Shown:
    """Options for showing and writing profiles."""

    consensus: SavedConsensus = None
    output: Output = None
    config: Config = HERE
    details: Annotated[bool, opt("Show the statistics behind the figures as well.", "--details")] = False
    as_json: Json = False


@grouped
def annotators(
    given: Given,
    shown: Shown,
    rows: Annotated[int, opt("Number of annotators to show; those who need review come first.", min=1)] = 30,
    least_accuracy: Annotated[
        float, opt("Flag whoever is clearly right less often; 0 to 1. Projects: crew.least_accuracy.", min=0, max=1)
    ] = 0.0,
) -> None:
    """Show each annotator's accuracy and typical errors, who needs training, and who answers alike."""
    from hitl.models.analysis.annotator_profile import AnnotatorProfiler

    judged = _judged("annotators", given, shown)
    profiles = judged.map(AnnotatorProfiler(least_accuracy=least_accuracy or judged.least_accuracy).fit)
    frames = {name: _annotators_frame(profile) for name, profile in profiles.items()}
    _show(
        judged, shown, frames, profiles, _annotators_data, partial(_annotators_lines, rows=rows, details=shown.details)
    )


@grouped
def models(
    given: Given,
    shown: Shown,
    rows: Annotated[int, opt("Number of classes to show; those where annotators add most come first.", min=1)] = 12,
    error: Annotated[
        float | None, share("Share of all items that may skip annotators with a wrong label; default 2%.")
    ] = None,
    skip_list: Annotated[
        Path | None, opt("Table to write of the items that need no annotator: item, label, confidence.")
    ] = None,
    replay: Annotated[
        int | None, opt("Make the list 100 times with this many of the gold items, and count false promises.", min=1)
    ] = None,
) -> None:
    """Show whether models help: accuracy alone and together with annotators, and items that need no annotator."""
    import pyarrow as pa

    from hitl.active.guarantees.skip_list import ERROR, make_skip_list, replayed
    from hitl.models.analysis.model_profile import ModelProfiler

    error = ERROR if error is None else error
    if not 0 < error < 1:
        raise BadSettings(f"--error {error:g}: expected a share above 0 and below 1, as 2%")
    if given.annotations is not None and not given.probabilities:
        raise BadSettings("models: --probabilities is needed, for instance --probabilities resnet=probs.csv")
    judged = _judged("models", given, shown, skip_list)
    profiles = judged.map(ModelProfiler().fit)
    skipping = judged.map(partial(make_skip_list, error=error))
    again = {} if replay is None else judged.map(partial(replayed, gold=replay, error=error))
    tables = {name: pa.Table.from_pandas(skips.labels, preserve_index=False) for name, skips in skipping.items()}
    _show(
        judged,
        shown,
        {name: profile.frame() for name, profile in profiles.items()},
        {name: (profile, skipping[name], again.get(name)) for name, profile in profiles.items()},
        lambda found: (
            _json_values(found[0])
            | {"skips": _json_values(found[1].figures())}
            | ({"replayed": _json_values(found[2])} if found[2] else {})
        ),
        partial(_models_lines, rows=rows, details=shown.details),
        write_tables(skip_list, tables).values(),
    )


@dataclass(frozen=True)
class Judged:
    """Evidence and consensus of each question.

    Attributes:
        command: name of the command.
        project: name of the project, or None for files.
        basis: where the consensus comes from, in words.
        questions: question ("" for files) -> evidence and consensus.
        least_accuracy: accuracy that the project requires of annotators, in [0, 1].
        suggestions: how far suggestions pull the answers of a project, or None if nobody has seen one.
    """

    command: str
    project: str | None
    basis: str
    questions: dict[str, tuple[Evidence, Consensus]]
    least_accuracy: float = 0.0
    suggestions: Pulls | None = None

    def map(self, fit: Callable[[Evidence, Consensus], Any]) -> dict[str, Any]:
        """Return question -> result of `fit`."""
        return {name: fit(evidence, consensus) for name, (evidence, consensus) in self.questions.items()}


def _judged(command: str, given: Given, shown: Shown, also_written: Path | None = None) -> Judged:
    """Combine the files, or return the results of the project's last run, combined again if its inputs have changed."""
    from hitl.inputs_digest import stored_results
    from hitl.learning.suggestions import pulls_of_suggestions
    from hitl.project import stored, stored_evidence, stored_questions
    from hitl.status import as_of
    from hitl.tables.write import require_writable

    outputs = [shown.output, also_written]
    for output in outputs:
        require_writable(output)
    if given.annotations is not None:
        evidence, result = given.judged(command, shown.consensus, outputs)
        return Judged(command, None, f"{evidence}; judged by {result.fit.method}", {"": (evidence, result)})
    given.need_project(command, shown.config, consensus=shown.consensus)
    with stored(shown.config) as (settings, store), show.progress(shown.as_json) as progress:
        known = stored_evidence(settings, store, stored_questions(settings, store))
        if command == "models":
            known = {name: evidence for name, evidence in known.items() if evidence.probabilities}
            if not known:
                raise BadEvidence(
                    f"project {settings.name!r}: no model's probabilities; expected probabilities_<model>.csv in a "
                    "folder of tables, predictions in Label Studio, or a file that [models] of hitl.toml names"
                )
        require_unread(
            shown.config, settings, (file for output in outputs for file in files_for(output, known).values())
        )
        results, of_last_run = stored_results(settings, store, known, progress)
        basis = as_of(store, settings.name)
        pulls = pulls_of_suggestions(settings, store, known) if command == "annotators" else None
    basis += "" if of_last_run else "; combined now, because labels, settings or files have changed since"
    questions = {name: (known[name], results[name]) for name in known}
    return Judged(command, settings.name, basis, questions, settings.crew.least_accuracy, pulls)


def _show(
    judged: Judged,
    shown: Shown,
    frames: dict[str, pd.DataFrame],
    profiles: dict[str, Any],
    data_of: Callable[[Any], Any],
    lines_of: Callable[[str, Any], Iterator[show.Line]],
    also_written: Iterable[Path] = (),
) -> None:
    """Write the tables, and print the profiles as JSON or text."""
    import pyarrow as pa

    tables = {name: pa.Table.from_pandas(frame, preserve_index=False) for name, frame in frames.items()}
    written = write_tables(shown.output, tables)

    def data() -> dict[str, Any]:
        questions = {
            name: {"method": consensus.fit.method, **_json_values(data_of(profiles[name]))}
            for name, (_, consensus) in judged.questions.items()
        }
        of_project = {"project": judged.project, "as_of": judged.basis, "questions": questions}
        of_project |= {} if judged.suggestions is None else {"suggestions": _json_values(judged.suggestions)}
        whole = questions[""] if judged.project is None else of_project
        return whole | {"written": {name or judged.command: str(path) for name, path in written.items()}}

    def lines() -> Iterator[show.Line]:
        yield judged.basis
        for name, profile in profiles.items():
            yield from lines_of(f": {name}" if name else "", profile)
        if judged.suggestions is not None:
            yield str(judged.suggestions.overall)
        yield from show.wrote([*written.values(), *also_written])

    show.result(data, lines(), shown.as_json)


def _json_values(value: Any) -> Any:
    """Convert dataclasses, tables and arrays to JSON values, with null for NaN and infinity."""
    if is_dataclass(value):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    if hasattr(value, "to_dict"):
        value = value.to_dict("records")
    if isinstance(value, dict):
        return {key: _json_values(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_json_values(part) for part in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


# -- annotators --------------------------------------------------------------------------------------------


def _annotators_frame(profiles: AnnotatorProfiles) -> pd.DataFrame:
    return profiles.frame().sort_values("labels", ascending=False, kind="stable")


def _annotators_data(profiles: AnnotatorProfiles) -> dict[str, Any]:
    import pandas as pd

    communities, frame, rows = profiles.communities, _annotators_frame(profiles), []
    for k, row in zip(frame.index.tolist(), frame.to_dict("records"), strict=True):
        change = profiles.changes[k]
        more = {
            "confusions": profiles.confusions[k],
            "flags": profiles.flags(k),
            "community": communities.main[k] + 1 or None,
            "communities": {str(g + 1): share for g, share in communities.of(k)},
            "windows": [] if change is None else pd.DataFrame(vars(change.windows)),
        }
        rows.append(row | more)
    prototypes = communities.prototype.round(4).tolist()
    return {
        "classes": profiles.people.classes,
        "options": profiles.people.options,
        "entropy": profiles.entropy,
        "agreement": profiles.agreement,
        "ways_to_answer": dict(zip(("works", "spams", "misleads"), profiles.ways.shares.tolist(), strict=True)),
        "communities": [
            {"community": g, **_json_values(kind), "prototype": prototype}
            for g, (kind, prototype) in enumerate(zip(profiles.kinds(), prototypes, strict=True), start=1)
        ],
        "annotators": rows,
    }


def _annotators_lines(question: str, profiles: AnnotatorProfiles, rows: int, details: bool) -> Iterator[show.Line]:
    """Yield the table of annotators, flagged ones first, and a summary of the crowd."""
    from rich.console import Console

    wide = Console().width >= WIDE
    order = sorted(_annotators_frame(profiles).index, key=lambda k: not profiles.flags(k))
    few = f" ({rows} of {len(order):,}; --rows shows more, --output writes all)" if len(order) > rows else ""
    words = ("annotator", "group", "flags, typical errors")
    more = [*(["bits"] if details else []), *(["agrees"] if wide else [])]
    header = (words[0], "labels", "accuracy (95 %)", *more, *words[1:])
    cells = [_annotator_row(profiles, k, more) for k in order[:rows]]
    yield show.Table(f"Annotators{question}{few}", header, cells, words, gap=2 if wide else 1)
    agreement = profiles.agreement
    if agreement.items:
        yield (
            f"Agreement: Krippendorff's alpha {figure(agreement.alpha)} ({figure(agreement.low)} to "
            f"{figure(agreement.high)}), Fleiss' kappa {figure(agreement.fleiss)}, mean of Cohen's kappa "
            f"{figure(agreement.cohen)} over {agreement.pairs:,} pairs; two labels of an item are equal: "
            f"{percent(agreement.observed, 0)} ({agreement.items:,} items with two labels or more)"
        )
    if details:
        yield f"Bits: what one label tells of the class, of {profiles.entropy:.2f} that are missing before any label"
    for g, kind in enumerate(profiles.kinds(), start=1):
        bits = f", {kind.bits:.2f} bits" if details else ""
        size = show.counted(kind.size, "annotator")
        yield f"Group {g}: {size}, {kind.accuracy * 100:.0f} % right{bits}; {kind.words}"
    total, few_labels = len(profiles.names), int((profiles.communities.main < 0).sum())
    if few_labels:
        yield f"{UNKNOWN}: {few_labels:,} of {total:,} annotators have too few labels to be in a group"
    flagged = sum(bool(profiles.flags(k)) for k in range(total))
    yield f"People to talk to: {flagged:,} of {total:,} annotators" if flagged else "People to talk to: no one"


def _annotator_row(profiles: AnnotatorProfiles, k: int, more: Sequence[str]) -> list[str | Text]:
    from rich.text import Text

    people, (low, high) = profiles.people, profiles.people.interval
    words = [Text(flag, "bold") for flag in profiles.flags(k)]
    words += [Text(str(confusion)) for confusion in profiles.confusions[k][:TYPICAL_ERRORS]]
    groups = profiles.communities.of(k)
    shares = [f"{g + 1}: {share * 100:.0f} %" for g, share in groups]
    return [
        str(profiles.names[k]),
        f"{people.labels[k]:,}",
        within(people.accuracy[k], low[k], high[k], 0),
        *({"bits": f"{profiles.bits[k]:.2f}", "agrees": percent(float(profiles.agrees[k]), 0)}[name] for name in more),
        "\n".join(shares) if len(groups) > 1 else str(groups[0][0] + 1) if groups else UNKNOWN,
        Text("\n").join(words),
    ]


# -- models ------------------------------------------------------------------------------------------------


def _models_lines(
    question: str, found: tuple[ModelProfile, SkipList, ReplayedSkips | None], rows: int, details: bool
) -> Iterator[show.Line]:
    """Yield whether the model helps, accuracies, items that can skip annotators, and in detail what these rest on."""
    profile, skips, again = found
    account, measured = profile.best, profile.measured is not None
    if measured:
        how = "measured on gold items, each judged by fits that did not see it"
    else:
        how = "expected by the consensus, which believes itself; ground truth (--truth, or `hitl gold`) measures it"
    yield f"Does the model help{question}? {profile.verdict}"
    yield f"{account.items:,} items with a label and a model, {how}"
    classes = account.large_classes()
    note = f"; the {rows} of {len(classes)} classes where annotators add most" if len(classes) > rows else ""
    header: tuple[str, ...] = ("", "items", "model", "annotators", "both", "annotators add")
    yield show.Table(f"Accuracy{question} (95 %){note}", header, _accuracies(account, classes[:rows]), [""])
    yield f"Which items need no annotator{question}? {skips.statement}"
    if again is not None:
        yield str(again)
    if not details:
        yield "--details: how sure the models are, how independently they err, and a bound"
        return
    bound = account.bound
    yield (
        f"Confidence ratios (Theorem 1): the P+L of both is right in at least {percent(bound.bound)} "
        f"({percent(bound.tighter)} against the runner-up alone); "
        f"{'measured' if measured else 'expected'}: {percent(bound.accuracy)}. "
        f"The true class outweighs all others for the model in {percent(bound.model_above_one)}, for annotators in "
        f"{percent(bound.people_above_one)}"
    )
    parts = [
        f"{name} {percent(account.error[name])}"
        + (f" (temperature {profile.temperatures[name]:.2f})" if name in profile.temperatures else "")
        for name in profile.models
    ]
    yield f"Calibration error: {', '.join(parts)}; calibrated {percent(account.error['calibrated'])}"
    dependence = []
    for row in account.dependence.to_dict("records"):
        bits = (figure(row[name], ".3f") for name in ("bits", "chance", "p_value"))
        dependence.append((f"{row['first']}, {row['second']}", f"{row['items']:,}", *bits, figure(row["together"])))
    header = ("", "items", "bits", "by chance", "p", "bits, class not given")
    yield show.Table(f"What one still says of the other, given the class{question}", header, dependence, [""])


def _accuracies(account: Account, classes: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    yield ("all items", *_accuracy(account.overall.iloc[0]))
    for _, row in classes.iterrows():
        yield (f"class {row['class']}", *_accuracy(row))
    for _, row in account.confidence.iterrows():
        yield (f"sure {sure(row['from'], 1)}–{sure(row['to'], 1)} %", *_accuracy(row))


def _accuracy(row: pd.Series[Any]) -> tuple[str, ...]:
    added, low, high = (  # adding 0.0 turns -0.0 into 0.0
        figure(round(row[name] * 100, 1) + 0.0, "+.1f") for name in ("people_add", "people_add_low", "people_add_high")
    )
    shares = (within(row[who], row[f"{who}_low"], row[f"{who}_high"]) for who in ("model", "people", "both"))
    return (f"{row['items']:,.0f}", *shares, UNKNOWN if added == UNKNOWN else f"{added} ({low} to {high})")
