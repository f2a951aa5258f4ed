"""Model profiles: do annotators and models together beat each alone?

A profile has two accounts with the same tables: `expected`, by the probabilities of the consensus over all items that
can be compared, and `measured`, over items with ground truth that were predicted without it (see `complementarity`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats, Ints
from hitl.consensus import Consensus
from hitl.errors import BadEvidence, BadInput
from hitl.evidence import Evidence
from hitl.formatting import OneLineRepr, counted
from hitl.models.analysis import complementarity, conditional_information
from hitl.models.analysis.complementarity import LEAST_KNOWN, Comparison, Judgements, most_probable
from hitl.models.analysis.conditional_information import SHUFFLES, Judge, a_label, fixed, two_labels
from hitl.models.analysis.confidence_ratios import Bound, accuracy_bound

if TYPE_CHECKING:
    import pandas as pd

KEYS = {
    "overall": (),
    "classes": ("class",),
    "confidence": ("from", "to"),
    "calibration": ("when", "model", "confidence"),
    "deferral": ("share",),
    "dependence": ("first", "second"),
}
"""Tables of an account, and the columns that identify their rows."""

BINS = 10
"""Number of groups of similar confidence."""

LEAST_IN_CLASS = 30
"""Minimum (expected) number of items of a class that is shown by itself: the interval of fewer tells nothing."""

MOST_ITEMS = 20_000
"""Maximum number of items in a test of dependence; of more items a sample is drawn."""

PEOPLE, ANOTHER = "annotators", "annotators (another label)"


@dataclass(frozen=True, eq=False)
class Account:
    """Accuracy of annotators and model, by expected or measured truth.

    Attributes:
        items: number of items compared, which have labels and a model's prediction.
        overall, classes, confidence: accuracy of model, annotators and both, with 95 % intervals, and what each adds:
            over all items, by class, and by the model's confidence.
        bound: lower bound on the accuracy of P+L (`confidence_ratios`).
        calibration: reliability before (each model's own probabilities) and after (the calibrated pool).
        error: calibration error of each model and of the pool ("calibrated"): mean gap between confidence and accuracy,
            in [0, 1].
        deferral: accuracy by the share of items that skip annotators, those the model is most certain of first.
        dependence: conditional mutual information of each pair of judges, given the class.
    """

    items: int
    overall: pd.DataFrame
    classes: pd.DataFrame
    confidence: pd.DataFrame
    bound: Bound
    calibration: pd.DataFrame
    error: Mapping[str, float]
    deferral: pd.DataFrame
    dependence: pd.DataFrame

    def large_classes(self) -> pd.DataFrame:
        """Return the rows of `classes` with at least LEAST_IN_CLASS items, first those where annotators add most."""
        large = self.classes[self.classes["items"] >= LEAST_IN_CLASS]
        return large.sort_values("people_add", ascending=False, kind="stable")


@dataclass(frozen=True, eq=False, repr=False)
class ModelProfile(OneLineRepr):
    """Profile of annotators and models together.

    Attributes:
        models: names of the models.
        temperatures: model name -> temperature, > 1 if the model is overconfident.
        items, labeled, spoken: number of items in total, with a label, with a model's prediction.
        expected, measured: accounts; `measured` is None with fewer than LEAST_KNOWN compared items with ground truth.
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
        """The measured account, or else the expected one."""
        return self.expected if self.measured is None else self.measured

    @property
    def verdict(self) -> str:
        """Sentence that says whether the model helps. Only known answers can tell: the consensus flatters itself."""
        if self.measured is None:
            return f"Can't tell yet: {LEAST_KNOWN} or more answered gold items would tell (`hitl gold truth.csv`)"
        row = self.measured.overall.iloc[0]
        adds, low, high = (float(row[name]) * 100 for name in ("model_adds", "model_adds_low", "model_adds_high"))
        answer = "Yes" if low > 0 else "No, it harms" if high < 0 else "Can't tell yet"
        basis = f"measured on {counted(self.measured.items, 'item')} with known answers"
        return f"{answer}: it adds {adds:+.1f} points to the annotators' accuracy ({low:+.1f} to {high:+.1f}; {basis})"

    def __str__(self) -> str:
        by = "expected" if self.measured is None else "measured"
        return f"{', '.join(self.models)}: {self.spoken:,} of {counted(self.items, 'item')} predicted; {by}"

    def frame(self) -> pd.DataFrame:
        """Return all tables as one, a row per figure: account, table, row, figure, value, low, high (NaN if none)."""
        import pandas as pd

        figures: list[dict[str, object]] = []
        for name, account in (("expected", self.expected), ("measured", self.measured)):
            if account is not None:
                for table, keys in KEYS.items():
                    figures += _figures(name, table, getattr(account, table), keys)
        return pd.DataFrame(figures, columns=["account", "table", "row", "figure", "value", "low", "high"])


@dataclass(frozen=True, slots=True)
class ModelProfiler:
    """Profile annotators and models together; `shuffles` is the number of shuffles in each test of independence."""

    shuffles: int = SHUFFLES

    def fit(self, evidence: Evidence, consensus: Consensus, *, truth: Ints | None = None) -> ModelProfile:
        """Profile the evidence and a consensus over it; `truth` (N,) is held-out truth, -1 where unknown.

        Truth in the evidence is hidden from the fits that predict its items. No fit uses the truth passed here. Raise
        BadEvidence without a model or if the truth does not fit the evidence, BadInput if the consensus does not.
        """
        if not evidence.probabilities:
            raise BadEvidence(
                "no model to compare annotators with: give its probabilities (--probabilities MODEL=FILE)"
            )
        annotations = evidence.annotations
        if (annotations.items, annotations.classes) != (consensus.items, consensus.classes):
            raise BadInput("the consensus has other items or classes than the evidence; combine the evidence first")
        known = (evidence if truth is None else replace(evidence, truth=truth)).truth
        judged = complementarity.judge(evidence, consensus)
        assert known is not None
        measured = np.flatnonzero(judged.compared & (known >= 0))
        truth_nj = np.eye(len(consensus.classes))[np.maximum(known, 0)]
        return ModelProfile(
            tuple(evidence.probabilities),
            dict(consensus.temperatures),
            len(consensus.items),
            int((annotations.labels_per_item > 0).sum()),
            int(evidence.predicted.sum()),
            self._account(evidence, judged, consensus.probabilities, np.flatnonzero(judged.compared)),
            self._account(evidence, judged, truth_nj, measured) if measured.size >= LEAST_KNOWN else None,
        )

    def _account(
        self, evidence: Evidence, judged: Judgements, truth_nj: Floats, items: npt.NDArray[np.intp]
    ) -> Account:
        compared = Comparison.of(judged, truth_nj, items)
        calibration, error = _calibration({**evidence.probabilities, "": judged.model}, truth_nj, items)
        return Account(
            len(items),
            compared.overall(),
            compared.by_class(evidence.annotations.classes),
            compared.by_confidence(BINS),
            accuracy_bound(judged.model[items], judged.log_likelihood[items], compared.truth),
            calibration,
            error,
            complementarity.deferral_curve(compared.confidence, compared.right("model"), compared.right("both")),
            self._dependence(evidence, truth_nj, items),
        )

    def _dependence(self, evidence: Evidence, truth_nj: Floats, items: npt.NDArray[np.intp]) -> pd.DataFrame:
        import pandas as pd

        annotations, rows = evidence.annotations, []

        def add(first: str, second: str, one: Judge, other: Judge, among: npt.NDArray[np.intp]) -> None:
            found = conditional_information.dependence(one, other, truth_nj[among], self.shuffles)
            rows.append({"first": first, "second": second} | asdict(found))

        def some(wanted: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
            if len(wanted) <= MOST_ITEMS:
                return wanted
            return np.sort(np.random.default_rng(0).choice(wanted, MOST_ITEMS, replace=False))

        answers = {name: _answers(q_nj) for name, q_nj in evidence.probabilities.items()}
        for name, answer_n in answers.items():
            among = some(items[answer_n[items] >= 0])
            add(PEOPLE, name, a_label(annotations, among), fixed(answer_n[among]), among)
        for (first, one_n), (second, other_n) in combinations(answers.items(), 2):
            among = some(items[(one_n[items] >= 0) & (other_n[items] >= 0)])
            add(first, second, fixed(one_n[among]), fixed(other_n[among]), among)
        among = some(items[annotations.labels_per_item[items] > 1])
        if among.size:
            add(PEOPLE, ANOTHER, *two_labels(annotations, among), among)
        return pd.DataFrame(rows)


def _calibration(
    models: Mapping[str, Floats], truth_nj: Floats, items: npt.NDArray[np.intp]
) -> tuple[pd.DataFrame, dict[str, float]]:
    """Return the reliability of each model, and of the calibrated pool (""), over the items that each predicts."""
    import pandas as pd

    frames, error = [], {}
    for name, q_nj in models.items():
        rows = items[~np.isnan(q_nj[items, 0])]
        label = most_probable(q_nj[rows])
        frame = complementarity.reliability(q_nj[rows].max(axis=1), truth_nj[rows, label], BINS)
        frame.insert(0, "model", name or "calibrated")
        frame.insert(0, "when", "before" if name else "after")
        frames.append(frame)
        gap = (frame["confidence"] - frame["accuracy"]).abs()
        error[name or "calibrated"] = float((gap * frame["items"]).sum() / max(len(rows), 1))
    return pd.concat(frames, ignore_index=True), error


def _figures(account: str, table: str, frame: pd.DataFrame, keys: tuple[str, ...]) -> list[dict[str, object]]:
    """Return a dict per figure of a table, with its interval."""
    ends = {name for name in frame if name in ("low", "high") or str(name).endswith(("_low", "_high"))}
    figures = []
    for row in frame.to_dict("records"):
        name = " ".join(f"{row[key]:.9g}" if isinstance(row[key], float) else str(row[key]) for key in keys)
        for figure in (figure for figure in frame if figure not in ends and figure not in keys):
            prefix = "" if figure == "accuracy" else f"{figure}_"
            low, high = (row.get(f"{prefix}{end}", np.nan) for end in ("low", "high"))
            place = {"account": account, "table": table, "row": name, "figure": figure}
            figures.append(place | {"value": row[figure], "low": low, "high": high})
    return figures


def _answers(q_nj: Floats) -> Ints:
    """Return (N,) a model's most probable class, -1 where it abstains."""
    abstains = np.isnan(q_nj[:, 0])
    return np.where(abstains, -1, most_probable(np.where(abstains[:, None], 0.0, q_nj))).astype(np.int32)
