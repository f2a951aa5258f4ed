"""One call from tables to labels: the same as the steps, whatever the tables are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pytest

import hitl
from hitl.annotations import Annotations
from hitl.consensus import Fit
from hitl.errors import BadAnnotations, BadInput, BadSettings, BadTable, GuessedOrder
from hitl.evidence import Evidence
from hitl.models import DefaultCombiner, OneCoin
from hitl.models.registry import combiner
from hitl.testing import crowd

EVIDENCE, _ = crowd(np.random.default_rng(5), n_items=60, n_annotators=7, n_classes=3, models=2, known=0.3)
LABELS = EVIDENCE.annotations.table().to_pandas()
TRUTH = pd.DataFrame(
    [
        (EVIDENCE.annotations.items[n], EVIDENCE.annotations.classes[EVIDENCE.truth[n]])
        for n in np.flatnonzero(EVIDENCE.known)
    ],
    columns=["item", "label"],
)
WIDE = LABELS.pivot(index="item", columns="annotator", values="label")


def model(name: str) -> pd.DataFrame:
    columns = [f"p_{each}" for each in EVIDENCE.annotations.classes]
    frame = pd.DataFrame(EVIDENCE.probabilities[name], columns=columns)
    return frame.assign(item=EVIDENCE.annotations.items).sample(frac=1, random_state=0)


def test_it_is_what_the_steps_give() -> None:
    found = hitl.combine(LABELS, {"m0": model("m0"), "m1": model("m1")}, TRUTH)
    expected = DefaultCombiner().fit(Evidence.from_tables(LABELS, {"m0": model("m0"), "m1": model("m1")}, TRUTH))
    assert found.items == expected.items
    np.testing.assert_array_equal(found.probabilities, expected.probabilities)
    assert set(hitl.combine(LABELS, model("m0")).temperatures) == {"model"}


def test_a_method_and_its_settings_and_columns_are_named() -> None:
    other = LABELS.rename(columns={"item": "task", "annotator": "who", "label": "said"})
    found = hitl.combine(other, method="one-coin", item="task", annotator="who", label="said", max_iterations=3)
    expected = OneCoin(max_iterations=3).fit(Evidence(Annotations.from_frame(LABELS)))
    np.testing.assert_array_equal(found.probabilities, expected.probabilities)
    with pytest.raises(BadSettings, match="no-such"):
        hitl.combine(LABELS, method="no-such")
    with pytest.raises(BadSettings, match="method 'vb-ibcc': shared is 'false'; expected true or false"):
        combiner("vb-ibcc", shared="false")
    for given in (1.5, {"mu": 1}, "warm"):
        with pytest.raises(BadSettings, match=r"temperature is .*; expected the prior of its logarithm"):
            combiner("pl-em", temperature=given)
    with pytest.raises(BadSettings, match="method 'majority' has no setting 'temperature'"):
        combiner("majority", temperature=1.0)


@pytest.mark.parametrize(
    ("mistyped", "meant"),
    [("metod", "method"), ("truht", "truth"), ("annotater", "annotator"), ("probabilites", "probabilities")],
)
@pytest.mark.parametrize("method", ["default", OneCoin()], ids=["a name", "a method"])
def test_a_mistyped_argument_is_named_with_the_one_that_was_meant(mistyped: str, meant: str, method: Any) -> None:
    expected = f"^combine has no argument '{mistyped}'; did you mean '{meant}'\\?$"
    with pytest.raises(BadSettings, match=expected):
        hitl.combine(LABELS, method=method, **{mistyped: None})
    crowd = LABELS.rename(columns={"item": "task", "annotator": "worker"})
    with pytest.raises(BadSettings, match=expected):
        hitl.Aggregator(method, **{mistyped: None}).fit(crowd)


DAYS = date(2026, 3, 1), date(2026, 11, 28)
VALUES = {
    "booleans": pd.Series([True, False]),
    "pandas booleans": pd.Series([True, False], dtype="boolean"),
    "floats": pd.Series([0.1, 2.0]),
    "short floats": pd.Series([0.25, 2.5], dtype="float32"),
    "dates": pd.Series(DAYS),
    "times": pd.Series([pd.Timestamp(day) for day in DAYS]),
    "nanoseconds": pd.Series([pd.Timestamp(day) for day in DAYS]).astype("datetime64[ns]"),
    "categories": pd.Series(pd.Categorical([True, False])),
    "whole numbers": pd.Series([1, 2]),
    "text": pd.Series(["yes", "no"]),
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_labels_compare_equal_to_those_of_the_frame(values: pd.Series[Any], tmp_path: Path) -> None:
    said = values.iloc[[0, 0, 0, 1, 1, 1]].reset_index(drop=True)
    long = pd.DataFrame({"item": [*"aaabbb"], "annotator": ["ann", "bob", "cy"] * 2, "label": said})
    wide = pd.DataFrame({"item": [*"ab"], "ann": values, "bob": values, "cy": values})
    first, second = values.tolist()
    for found in (
        hitl.combine(long),
        hitl.combine(wide),
        hitl.combine(long, truth={"a": first}),
        hitl.combine(long, classes=[first, second]),
        hitl.combine(long, (np.array([[0.9, 0.1], [0.2, 0.8]]), [first, second])),
        hitl.combine(long, pd.DataFrame({"item": [*"ab"], f"p_{first}": [0.9, 0.2], f"p_{second}": [0.1, 0.8]})),
    ):
        assert len(found.classes) == 2
        assert (found.labels == values.to_numpy()).all()
        assert (found["a"].label, {*found["a"].probabilities}) == (first, {first, second})
        assert (found.frame()["label"] == values).all()
        assert hitl.score.accuracy(found, {"a": first, "b": second}) == 1
        found.save(tmp_path / "found.npz")
        assert (hitl.Consensus.load(tmp_path / "found.npz").labels == found.labels).all()
    crowd = hitl.Aggregator().fit(long.rename(columns={"item": "task", "annotator": "worker"}))
    assert (crowd.labels_.to_numpy() == values.to_numpy()).all()
    assert (crowd.probas_.idxmax(axis=1) == crowd.labels_).all()


@pytest.mark.parametrize(
    "wide",
    [WIDE, WIDE.reset_index(), pl.from_pandas(WIDE.reset_index())],
    ids=["index", "column", "polars"],
)
def test_a_wide_table_is_the_long_one(wide: Any) -> None:
    expected = hitl.combine(LABELS).frame().set_index("item")
    found = hitl.combine(wide).frame().set_index("item")
    pd.testing.assert_frame_equal(found.sort_index(), expected.sort_index())


@pytest.mark.filterwarnings("ignore::hitl.errors.UnmatchedNames")
def test_rows_without_labels_stay_items() -> None:
    wide = {"item": ["a", "b", "c"], "ann": ["x", None, "y"], "bob": ["x", None, None], "cy": [None, None, None]}
    assert hitl.combine(wide).items == ("a", "b", "c")
    assert hitl.combine(wide).annotators.names == ("ann", "bob")
    both = hitl.combine(
        wide, {"item": ["d", "a"], "p_x": [0.9, 0.5], "p_y": [0.1, 0.5]}, {"item": ["b"], "label": ["y"]}
    )
    assert both.items == ("a", "b", "c", "d")
    assert both.frame()["label"].tolist() == ["x", "y", "y", "x"]


def test_numbers_and_text_in_a_wide_table() -> None:
    frame = pd.DataFrame({"item": [7, 8], "ann": [1, np.nan], "bob": [0, 1]})  # pandas makes floats of 1 and NaN
    assert hitl.combine(frame).classes == (0, 1)
    assert hitl.combine(frame.assign(bob=["0", "1"])).classes == ("0", "1")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"item": [1, 2], "worker": ["x", "y"], "answer": ["p", "q"]}, "column 'worker' has no label in common"),
        (
            {"item": [1, 1], "worker": ["x", "y"], "answer": ["p", "q"]},
            "item 1 has two rows; expected one row for each item",
        ),
        ({"item": [1, None], "ann": ["x", "y"]}, "row 1: 'item' is empty"),
        ({"item": [1, 2]}, "no column other than 'item'; expected a column for each annotator"),
        ({"item": [1, 2], "ann": [0, 1], "Unnamed: 0": [0, 1]}, "'Unnamed: 0' holds the row numbers of a table"),
    ],
)
def test_a_long_table_with_other_names_is_not_taken_for_a_wide_one(table: Any, words: str) -> None:
    with pytest.raises(BadAnnotations, match=words):
        hitl.combine(table)


ITEMS, CLASSES = LABELS["item"].unique(), np.array(EVIDENCE.annotations.classes)
P = EVIDENCE.probabilities["m0"][[EVIDENCE.annotations.items.index(name) for name in ITEMS]]


@pytest.mark.parametrize("labels", [LABELS, WIDE.loc[ITEMS]], ids=["long", "wide"])
@pytest.mark.parametrize(
    ("probabilities", "classes"),
    [
        ((P, CLASSES), None),
        ((P[:, ::-1], CLASSES[::-1]), None),
        ((P[::-1], list(CLASSES), ITEMS[::-1]), None),
        (P, CLASSES),
        (P.tolist(), list(CLASSES)),
        ({"model": (P, CLASSES)}, None),
        (pd.DataFrame(P[::-1], ITEMS[::-1], CLASSES), None),
        (pd.DataFrame(P, ITEMS, [f"p_{name}" for name in CLASSES]), None),
        (pd.DataFrame(P, ITEMS, CLASSES).rename_axis("item").reset_index(), None),
    ],
)
def test_a_classifier_says_what_it_predicts(labels: Any, probabilities: Any, classes: Any) -> None:
    expected = hitl.combine(LABELS, model("m0"))
    found = hitl.combine(labels, probabilities, classes=classes)
    assert [found[item].label for item in expected] == list(expected.labels)
    np.testing.assert_allclose([found[item].confidence for item in expected], expected.confidence, atol=1e-6)
    assert found.temperatures.keys() == {"model"}


def test_a_class_that_a_classifier_has_never_seen_stays_possible() -> None:
    found = hitl.combine(
        {"item": [1, 2, 3], "annotator": list("aaa"), "label": [0, 1, 2]}, (np.full((3, 2), 0.5), [0.0, 1.0])
    )
    assert found.classes == (0, 1, 2)


@pytest.mark.parametrize(
    "truth",
    [
        dict(TRUTH.to_numpy()),
        TRUTH.set_index("item")["label"],
        TRUTH.set_index("item")[["label"]].rename(columns={"label": "gold"}),
        {"item": TRUTH["item"].tolist(), "label": TRUTH["label"].tolist()},
        dict(TRUTH.to_numpy()) | dict.fromkeys(set(ITEMS) - set(TRUTH["item"])),
    ],
    ids=["dict", "series", "frame", "columns", "None"],
)
def test_truth_in_any_form_is_the_same(truth: Any) -> None:
    expected = hitl.combine(LABELS, truth=TRUTH)
    np.testing.assert_array_equal(hitl.combine(LABELS, truth=truth).probabilities, expected.probabilities)
    np.testing.assert_array_equal(
        Evidence.from_tables(LABELS, truth=truth).truth, Evidence.from_tables(LABELS, truth=TRUTH).truth
    )


def test_a_method_may_be_an_object() -> None:
    found = hitl.combine(LABELS, method=hitl.models.OneCoin(max_iterations=3))
    np.testing.assert_array_equal(
        found.probabilities, hitl.combine(LABELS, method="one-coin", max_iterations=3).probabilities
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"method": "DawidSkene"}, r"is unknown; did you mean 'dawid-skene'\? Expected one of default, majority"),
        ({"method": "vb_ibcc"}, r"did you mean 'vb-ibcc'\?"),
        ({"method": "one-coin", "max_iteration": 3}, r"no setting 'max_iteration'.*did you mean 'max_iterations'\?"),
        (
            {"method": OneCoin},
            r"method: got type; expected a name, such as 'vb-ibcc', or a method; call it: OneCoin\(\)",
        ),
        ({"method": 3}, "method: got int; expected a name"),
        ({"method": OneCoin(), "max_iterations": 3}, "OneCoin has its own settings; expected max_iterations there"),
        ({"method": OneCoin(), "paper": True}, "OneCoin has its own settings; expected paper there"),
    ],
)
def test_a_method_that_is_none_gets_a_sentence(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadSettings, match=words):
        hitl.combine(LABELS, **given)


def test_wrong_types_get_a_sentence() -> None:
    for wrong in ([[0.1, 0.9]], "resnet", OneCoin(), ([0.1, 0.9], ["x", "y"])):
        with pytest.raises(
            BadInput, match=r"probabilities 'model': got .*; expected a table .*\(model.predict_proba\(X\)"
        ):
            hitl.combine(LABELS, wrong)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"has shape \(2, 3\); expected \(60, 3\): a row per item, in the order"):
        hitl.combine(LABELS, (P[:2], CLASSES))
    with pytest.raises(BadTable, match=r"truth: got list; expected a DataFrame"):
        hitl.combine(LABELS, truth=[0, 1])
    with pytest.raises(BadTable, match=r"no column 'item'; found task"):
        hitl.combine({"task": [1], "annotator": ["x"], "label": ["y"]})


def test_a_mean_score_of_words_in_alphabetical_order_is_a_warning() -> None:
    labels = {"item": [1, 1, 2, 3], "annotator": list("abaa"), "label": ["low", "low", "high", "middle"]}
    with pytest.warns(GuessedOrder, match="mean-score takes the classes to be in this order: high, low, middle"):
        hitl.combine(labels, method="mean-score")
    hitl.combine(labels, method="mean-score", classes=["low", "middle", "high"])  # without a warning


EVIDENCE_TABLES = {
    "features": pd.DataFrame({"item": ITEMS, "x": np.arange(len(ITEMS)) % 3, "y": 1.0}),
    "graph": [*zip(ITEMS[1:], ITEMS[:-1], strict=True)],
    "sequence": pd.DataFrame({"item": ITEMS, "sequence": 0, "position": np.arange(len(ITEMS))}),
}


@pytest.mark.parametrize(
    ("method", "kind"), [("learned", "features"), ("network-ibcc", "graph"), ("sequential-ibcc", "sequence")]
)
@pytest.mark.parametrize("labels", [LABELS, WIDE], ids=["long", "wide"])
def test_whatever_a_method_needs_can_be_given(method: str, kind: str, labels: Any) -> None:
    found = hitl.combine(labels, method=method, **{kind: EVIDENCE_TABLES[kind]})
    assert found.fit.method == method
    assert sorted(found.items) == sorted(ITEMS)
    with pytest.raises(BadInput, match=rf"needs .*{kind}="):
        hitl.combine(labels, method=method)


def test_an_item_without_a_place_in_a_sequence_is_named() -> None:
    with pytest.raises(BadInput, match=r"sequence: item .* has no place"):
        hitl.combine(LABELS, method="sequential-ibcc", sequence=EVIDENCE_TABLES["sequence"][1:])
    with pytest.raises(BadInput, match=r"sequence, column 'page': not numeric: 'page 1'; expected numbers"):
        hitl.combine(LABELS, method="sequential-ibcc", sequence=EVIDENCE_TABLES["sequence"].assign(page="page 1"))


@dataclass(frozen=True)
class Own:
    """A method of a user, who did not think of the name, and may return anything."""

    uses: ClassVar[frozenset[str]] = frozenset({"truth"})
    returns: Any = None

    def fit(self, evidence: Evidence, *, start: Any = None) -> Any:
        found = hitl.models.MajorityVote().fit(evidence)
        return replace(found, fit=Fit("unknown")) if self.returns is None else self.returns


def test_a_method_of_a_user_has_its_name_and_must_return_a_consensus() -> None:
    found = hitl.combine(LABELS, method=Own())
    assert (found.fit.method, "Own: " in str(found)) == ("Own", True)
    with pytest.raises(BadSettings, match=r"method Own: fit returned ndarray; expected a hitl\.Consensus"):
        hitl.combine(LABELS, method=Own(np.zeros(3)))


def test_a_table_of_a_model_without_items_says_which_column_is_missing() -> None:
    table = {"song": ITEMS, **{f"p_{name}": P[:, j] for j, name in enumerate(CLASSES)}}
    with pytest.raises(BadTable, match="probabilities 'model': no column 'item'; found song, p_"):
        hitl.combine(LABELS, pd.DataFrame(table))


def test_an_ordered_categorical_keeps_its_order_and_a_column_twice_is_named() -> None:
    frame = pd.DataFrame({"item": [1, 1, 2, 3], "annotator": list("abaa"), "label": ["low", "low", "high", "middle"]})
    order = pd.CategoricalDtype(["low", "middle", "high"], ordered=True)
    assert hitl.combine(frame.astype({"label": order}), method="mean-score").classes == ("low", "middle", "high")
    twice = pd.concat([frame, frame[["label"]]], axis=1)
    with pytest.raises(BadTable, match="labels: column 'label' appears twice"):
        hitl.combine(twice)


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "no-such"},
        {"method": "one-coin", "max_iterations": -1},
        {"truth": {"nowhere": "x"}, "classes": ["a", "b"]},
        {"item": "task"},
        {"graph": [("a",)]},
    ],
)
def test_a_bad_value_is_a_value_error(wrong: dict[str, Any]) -> None:
    """As in scikit-learn."""
    with pytest.raises(ValueError, match=r"\w"):
        hitl.combine(LABELS, **wrong)


def test_labels_that_are_numbers_stay_numbers() -> None:
    codes = LABELS.assign(label=LABELS["label"].astype("category").cat.codes)
    found = hitl.combine(codes)
    assert found.labels.dtype == found.frame()["label"].dtype == np.int64
    assert type(found[found.items[0]].label) is int
    assert hitl.combine(LABELS).labels.dtype == object


@pytest.mark.parametrize("table", [LABELS.set_axis(["Item", "Who", "Answer"], axis=1), pd.DataFrame()])
def test_a_table_with_other_columns_is_refused_with_what_to_name(table: pd.DataFrame) -> None:
    with pytest.raises(
        BadTable, match=r"no column 'item'; found .* Name its columns with item=, annotator= and label="
    ):
        hitl.combine(table)


def test_a_frame_of_hitl_is_a_models_predictions_whatever_the_items_are_called() -> None:
    predictions = hitl.combine(LABELS).frame()
    other = hitl.combine(LABELS.rename(columns={"item": "song"}), predictions, item="song")
    assert np.array_equal(other.probabilities, hitl.combine(LABELS, predictions).probabilities)


OF_USER = """
from dataclasses import dataclass
from hitl.models import OneCoin

class NoFit:
    uses = frozenset()

@dataclass(frozen=True)
class Mine(OneCoin):
    @classmethod
    def paper(cls):
        return cls(max_iterations=2)

def made(**settings):
    return OneCoin(**settings)
"""


def test_a_method_in_a_file_has_the_settings_of_its_paper_and_needs_a_fit(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OF_USER)
    for name, given in {"Mine": {"paper": True}, "made": {"max_iterations": 2}}.items():
        found = hitl.combine(LABELS, method=f"{tmp_path}/mine.py:{name}", **given)
        expected = OneCoin(max_iterations=2).fit(Evidence(Annotations.from_frame(LABELS)))
        np.testing.assert_array_equal(found.probabilities, expected.probabilities)
    for name, given, words in (
        ("NoFit", {}, "mine.py:NoFit' has no `fit`; hitl.testing.check_combiner"),
        ("made", {"paper": True}, "mine.py:made' has no settings of a paper; expected a classmethod `paper`"),
    ):
        with pytest.raises(BadSettings, match=words):
            hitl.combine(LABELS, method=f"{tmp_path}/mine.py:{name}", **given)
