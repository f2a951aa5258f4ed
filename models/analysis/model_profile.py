"""Everything that tells whether human and model together help: one value for a consensus, a table for each question.

`ModelProfiler().fit(evidence, consensus)` gives a `ModelProfile`; its accounts say the same by two measures:

    expected   over all items that can be compared, by what the consensus believes
    measured   over those of known truth, judged without it (see `complementarity`); None without enough of them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats, Ints
from hitl.consensus import Consensus
from hitl.errors import BadEvidence, BadInput
from hitl.evidence import Evidence
from hitl.formatting import OneLineRepr, counted
from hitl.models.analysis.complementarity import LEAST_KNOWN, Comparison, Judgements, Judges, most_probable, reliability
from hitl.models.analysis.conditional_information import Dependence, DependenceTest, a_label, fixed, two_labels
from hitl.models.analysis.confidence_ratios import confidence_ratios
from hitl.models.analysis.deferral import can_skip, deferral_curve
from hitl.models.analysis.proportions import wilson

if TYPE_CHECKING:
    import pandas as pd

TARGETS = (0.9, 0.95, 0.98, 0.99, 0.995)
"""Accuracies of the labels that the model gives alone for which it is said how many items can skip annotators."""

QUANTILES = (0.1, 0.5, 0.9)

KEYS = {
    "overall": (),
    "classes": ("class",),
    "confidence": ("from", "to"),
    "calibration": ("when", "model", "confidence"),
    "deferral": ("share",),
    "skips": ("target", "by"),
    "dependence": ("first", "second"),
}
"""The tables of an account, and the columns that name their rows."""

PEOPLE, ANOTHER = "annotators", "annotators (another label)"


@dataclass(frozen=True)
class Bound:
    """Theorem 1 beside what it bounds; see `confidence_ratios`.

    Attributes:
        bound: lower bound of the accuracy of both; `tighter` is never lower.
        accuracy: of the P+L of model and annotators (that of `both`, if this is P+L), over the same items.
        model_above_one, people_above_one: share of items whose true class outweighs all others, by each alone.
        model_odds, people_odds: 10 %, 50 % and 90 % quantiles of log10 of the confidence ratio of the true class.
    """

    bound: float
    tighter: float
    accuracy: float
    model_above_one: float
    people_above_one: float
    model_odds: tuple[float, ...]
    people_odds: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Account:
    """What annotators and model are right about, by one account of the truth.

    Attributes:
        items: how many are compared: with a label, and a model that predicts.
        overall, classes, confidence: accuracy of model, annotators and both, with 95 % intervals, and what each adds.
        bound: Theorem 1.
        calibration: reliability before (each model as it comes) and after (the calibrated pool).
        error: calibration error of each of these: mean gap between confidence and accuracy, in [0, 1].
        deferral: accuracy over the share of items that skip annotators, the surest of the model first.
        skips: at each target how many items can skip annotators, by the model's own confidence (`claimed`) and by this
            account (`accuracy`, of those compared), and how right all labels would be (`overall`).
        dependence: conditional mutual information of every two judges, given the class.
    """

    items: int
    overall: pd.DataFrame
    classes: pd.DataFrame
    confidence: pd.DataFrame
    bound: Bound
    calibration: pd.DataFrame
    error: Mapping[str, float]
    deferral: pd.DataFrame
    skips: pd.DataFrame
    dependence: pd.DataFrame


@dataclass(frozen=True, eq=False, repr=False)
class ModelProfile(OneLineRepr):
    """Everything known of human and model together.

    Attributes:
        models: names; temperatures: how over-confident each was found to be.
        items, labeled, spoken: items there are, with a label, with a model's prediction.
        expected: by what the consensus believes, over all items that can be compared.
        measured: over those of known truth; None with fewer than LEAST_KNOWN.
    """

    models: tuple[str, ...]
    temperatures: Mapping[str, float]
    items: int
    labeled: int
    spoken: int
    expected: Account
    measured: Account | None

    @property
    def best(self) -> Account:
        """The measured account where there is one, else the expected."""
        return self.expected if self.measured is None else self.measured

    def __str__(self) -> str:
        by = "expected" if self.measured is None else "measured"
        return f"{', '.join(self.models)}: {self.spoken:,} of {counted(self.items, 'item')} predicted; {by}"

    def frame(self) -> pd.DataFrame:
        """All tables as one, a row a figure: account, table, row, figure, value, low, high (NaN where it has none)."""
        import pandas as pd

        found: list[dict[str, object]] = []
        for name, account in (("expected", self.expected), ("measured", self.measured)):
            if account is not None:
                for table, keys in KEYS.items():
                    found += _figures(name, table, getattr(account, table), keys)
        return pd.DataFrame(found, columns=["account", "table", "row", "figure", "value", "low", "high"])


@dataclass(frozen=True, slots=True)
class ModelProfiler:
    """Profiles human and model together.

    Attributes:
        judges: who judges as the model alone, annotators alone, and both.
        dependence: how dependence is tested.
        targets: accuracies for which it is said how many items can skip annotators, in (0, 1].
        bins: groups of similar confidence.
    """

    judges: Judges = field(default_factory=Judges)
    dependence: DependenceTest = field(default_factory=DependenceTest)
    targets: tuple[float, ...] = TARGETS
    bins: int = 10

    def fit(self, evidence: Evidence, consensus: Consensus, *, truth: Ints | None = None) -> ModelProfile:
        """What the evidence, a consensus over it and, held out, the `truth` (N,) say; -1 where it is not known.

        Truth in the evidence is hidden from fits that judge those items, which takes more fits. Truth given here was
        in none, and measures alone. Raises BadEvidence without a model, BadInput where consensus or truth do not match.
        """
        _check(evidence, consensus, truth)
        judged = self.judges.judge(evidence, consensus)
        pool = _Pool(evidence, judged, self)
        believed = np.flatnonzero(judged.compared)
        known = evidence.truth if truth is None else truth
        assert known is not None
        measured = np.flatnonzero(judged.compared & (known >= 0))
        truth_nj = np.eye(len(consensus.classes))[np.maximum(known, 0)]
        return ModelProfile(
            tuple(evidence.probabilities),
            dict(consensus.temperatures),
            len(consensus.items),
            int((evidence.annotations.labels_per_item > 0).sum()),
            int(evidence.predicted.sum()),
            pool.account(consensus.probabilities, believed),
            pool.account(truth_nj, measured) if measured.size >= LEAST_KNOWN else None,
        )


def _check(evidence: Evidence, consensus: Consensus, truth: Ints | None) -> None:
    if not evidence.probabilities:
        raise BadEvidence("no model to compare annotators with: give its probabilities (--probabilities MODEL=FILE)")
    annotations = evidence.annotations
    for kind, given, by in (
        ("items", annotations.items, consensus.items),
        ("classes", annotations.classes, consensus.classes),
    ):
        if given != by:
            raise BadInput(
                f"the consensus is over other {kind} ({len(by):,}) than the evidence ({len(given):,}); combine it first"
            )
    if truth is not None and np.shape(truth) != (annotations.n_items,):
        raise BadInput(f"truth has shape {np.shape(truth)}; expected {(annotations.n_items,)}")
    codes = None if truth is None else np.asarray(truth)
    if codes is not None and not (codes.dtype.kind in "iu" and ((codes >= -1) & (codes < annotations.n_classes)).all()):
        raise BadInput(f"truth: expected codes of {annotations.n_classes} classes, -1 where it is not known")


class _Pool:
    """The models of the evidence with what was judged, ready to be accounted for by any truth."""

    def __init__(self, evidence: Evidence, judged: Judgements, settings: ModelProfiler) -> None:
        self.evidence, self.judged, self.settings = evidence, judged, settings

    def account(self, truth_nj: Floats, items: npt.NDArray[np.intp]) -> Account:
        compared = Comparison.of(self.judged, truth_nj, items)
        calibration, error = self._calibration(truth_nj, items)
        return Account(
            len(items),
            compared.overall(),
            compared.by_class(self.evidence.annotations.classes),
            compared.by_confidence(self.settings.bins),
            self._bound(compared, items),
            calibration,
            error,
            _deferral(compared),
            self._skips(compared),
            self._dependence(truth_nj, items),
        )

    def _bound(self, compared: Comparison, items: npt.NDArray[np.intp]) -> Bound:
        ratios = confidence_ratios(self.judged.model[items], self.judged.log_likelihood[items])
        model, people = ratios.quantiles(compared.truth, QUANTILES)
        return Bound(
            ratios.bound(compared.truth),
            ratios.tighter_bound(compared.truth),
            ratios.accuracy(compared.truth),
            *ratios.above_one(compared.truth),
            tuple((model / np.log(10)).tolist()),
            tuple((people / np.log(10)).tolist()),
        )

    def _calibration(self, truth_nj: Floats, items: npt.NDArray[np.intp]) -> tuple[pd.DataFrame, dict[str, float]]:
        """Reliability of each model as it comes, and of the calibrated pool, over the items that each predicts."""
        import pandas as pd

        frames, error = [], {}
        for name, q_nj in (*self.evidence.probabilities.items(), ("", self.judged.model)):
            rows = items[~np.isnan(q_nj[items, 0])]
            label = most_probable(q_nj[rows])
            frame = reliability(q_nj[rows].max(axis=1), truth_nj[rows, label], self.settings.bins)
            frame.insert(0, "model", name or "calibrated")
            frame.insert(0, "when", "before" if name else "after")
            frames.append(frame)
            gap = (frame["confidence"] - frame["accuracy"]).abs()
            error[name or "calibrated"] = float((gap * frame["items"]).sum() / max(len(rows), 1))
        return pd.concat(frames, ignore_index=True), error

    def _skips(self, compared: Comparison) -> pd.DataFrame:
        """Two rows a target: as many as skip by the model's own confidence, and by this account."""
        import pandas as pd

        everywhere = self.judged.model[self.evidence.predicted].max(axis=1)
        right, found = compared.right("model"), []
        for target in self.settings.targets:
            claimed = can_skip(everywhere, everywhere, target)
            judged = can_skip(compared.confidence, right, target)
            for by, skip in (("model", claimed), ("labels", judged)):
                surest = everywhere >= skip.confidence if skip.items else np.zeros(len(everywhere), dtype=bool)
                found.append({"target": target, "by": by} | _skipping(compared, everywhere, surest, skip.confidence))
        return pd.DataFrame(found)

    def _dependence(self, truth_nj: Floats, items: npt.NDArray[np.intp]) -> pd.DataFrame:
        import pandas as pd

        test, annotations = self.settings.dependence, self.evidence.annotations
        said = {name: _answers(q_nj) for name, q_nj in self.evidence.probabilities.items()}
        found: list[tuple[str, str, Dependence]] = []
        for name, answer_n in said.items():
            rows = test.some(items[answer_n[items] >= 0])
            found.append(
                (PEOPLE, name, test.between(a_label(annotations, rows), fixed(answer_n[rows]), truth_nj[rows]))
            )
        for (one, answer_n), (other, answers_n) in combinations(said.items(), 2):
            rows = test.some(items[(answer_n[items] >= 0) & (answers_n[items] >= 0)])
            between = test.between(fixed(answer_n[rows]), fixed(answers_n[rows]), truth_nj[rows])
            found.append((one, other, between))
        rows = test.some(items[annotations.labels_per_item[items] > 1])
        if rows.size:
            found.append((PEOPLE, ANOTHER, test.between(*two_labels(annotations, rows), truth_nj[rows])))
        columns = ("bits", "chance", "p_value", "together", "items")
        return pd.DataFrame(
            [{"first": a, "second": b} | {name: getattr(d, name) for name in columns} for a, b, d in found]
        )


def _figures(account: str, table: str, frame: pd.DataFrame, keys: tuple[str, ...]) -> list[dict[str, object]]:
    """A dict a figure of a table; ends of intervals stand beside what they are of."""
    ends = {name for name in frame if name in ("low", "high") or str(name).endswith(("_low", "_high"))}
    found = []
    for row in frame.to_dict("records"):
        name = " ".join(f"{row[key]:.9g}" if isinstance(row[key], float) else str(row[key]) for key in keys)
        for figure in (figure for figure in frame if figure not in ends and figure not in keys):
            prefix = "" if figure == "accuracy" else f"{figure}_"
            low, high = (row.get(f"{prefix}{end}", np.nan) for end in ("low", "high"))
            place = {"account": account, "table": table, "row": name, "figure": figure}
            found.append(place | {"value": row[figure], "low": low, "high": high})
    return found


def _skipping(
    compared: Comparison, confidence_n: Floats, surest_n: npt.NDArray[np.bool_], least: float
) -> dict[str, float]:
    """What skips above a confidence, of all items that models predict, and how right that is among those compared."""
    right, both = compared.right("model"), compared.right("both")
    skips = compared.confidence >= least  # none where `least` is NaN
    low, high = wilson(right[skips].sum(), skips.sum())
    return {
        "items": int(surest_n.sum()),
        "share": float(surest_n.mean()) if surest_n.size else float("nan"),
        "confidence": least,
        "claimed": float(confidence_n[surest_n].mean()) if surest_n.any() else float("nan"),
        "compared": int(skips.sum()),
        "accuracy": float(right[skips].mean()) if skips.any() else float("nan"),
        "low": float(low),
        "high": float(high),
        "overall": float(np.where(skips, right, both).mean()) if len(right) else float("nan"),
    }


def _deferral(compared: Comparison) -> pd.DataFrame:
    import pandas as pd

    curve = deferral_curve(compared.confidence, compared.right("model"), compared.right("both"))
    return pd.DataFrame(vars(curve))


def _answers(q_nj: Floats) -> Ints:
    """(N,) a model's most probable class, -1 where it abstains."""
    abstains = np.isnan(q_nj[:, 0])
    return np.where(abstains, -1, most_probable(np.where(abstains[:, None], 0.0, q_nj))).astype(np.int32)
