"""The result: its labels, its report of the annotators, its tables, and its saved form."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hitl.annotations import Annotations
from hitl.consensus import AnnotatorReport, Consensus, Fit
from hitl.errors import BadInput, BadTable
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.default import DefaultCombiner
from hitl.tables.read import read_table


def consensus_of(**changes: Any) -> Consensus:
    rng = np.random.default_rng(0)
    concentration = rng.uniform(0.5, 9, size=(2, 2, 3))
    people = AnnotatorReport(
        ("007", "7"),
        ("x", "ü"),
        ("x", "ü", "unsure"),
        concentration,
        rng.dirichlet(np.ones(3), size=(2, 2)),
        np.array([4, 2]),
        np.array([0.3, 0.7]),
    )
    fields = {
        "items": ("NA", "12", "c"),
        "classes": people.classes,
        "probabilities": np.array([[0.1 + 0.2, 1 - (0.1 + 0.2)], [1 / 3, 2 / 3], [0.5, 0.5]]),
        "annotators": people,
        "class_shares": people.shares,
        "temperatures": {"m": 1 / 7},
        "fit": Fit("dawid-skene", {"smoothing": 0.01, "accuracy": None}, (-3.5, -1 / 3), False, 0.25),
    }
    return Consensus(**{**fields, **changes})


ARRAYS = ("probabilities", "class_shares")
PEOPLE = ("concentration", "confusion", "labels", "shares")


def assert_same(one: Consensus, two: Consensus) -> None:
    for field in ("items", "classes", "temperatures", "fit"):
        assert getattr(one, field) == getattr(two, field)
    for field in ("names", "classes", "options"):
        assert getattr(one.annotators, field) == getattr(two.annotators, field)
    pairs = [(getattr(one, field), getattr(two, field)) for field in ARRAYS]
    pairs += [(getattr(one.annotators, field), getattr(two.annotators, field)) for field in PEOPLE]
    for left, right in pairs:
        np.testing.assert_array_equal(left, right, strict=True)


# -- saved form ----------------------------------------------------------------------------------------------


def test_a_consensus_comes_back_exactly(tmp_path: Path) -> None:
    consensus = consensus_of()
    consensus.save(tmp_path / "c.npz")
    assert_same(Consensus.load(tmp_path / "c.npz"), consensus)
    assert_same(Consensus.from_bytes(consensus.to_bytes()), consensus)


def test_a_pool_that_nobody_has_labeled_yet_takes_little_room() -> None:
    """Rows that repeat are compressed; random digits, which would only cost time, are stored as they are."""
    items = tuple(range(5000))
    even = consensus_of(items=items, probabilities=np.full((5000, 2), 0.5))
    share = np.random.default_rng(0).random(5000)
    judged = consensus_of(items=items, probabilities=np.column_stack((share, 1 - share)))
    assert len(even.to_bytes()) < 30_000
    assert 80_000 < len(judged.to_bytes()) < 110_000
    assert_same(Consensus.from_bytes(judged.to_bytes()), judged)


def packed(**arrays: Any) -> bytes:
    memory = io.BytesIO()
    np.savez(memory, **arrays)
    return memory.getvalue()


def header(**fields: Any) -> np.ndarray:
    return np.frombuffer(json.dumps(fields).encode(), dtype=np.uint8)


def npy() -> bytes:
    memory = io.BytesIO()
    np.save(memory, np.zeros(3))
    return memory.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (packed(header=header(format=5)), r"c\.npz: saved as format 5; this version of hitl reads 6"),
        (packed(header=header(other=1)), r"c\.npz: not a saved consensus"),
        (packed(header=header(format=6)), r"c\.npz: not a saved consensus"),
        (packed(header=np.frombuffer(b"[1]", dtype=np.uint8)), r"c\.npz: not a saved consensus"),
        (packed(header=np.frombuffer(b"\xff", dtype=np.uint8)), r"c\.npz: not a saved consensus"),
        (packed(other=np.zeros(1)), r"c\.npz: not a saved consensus"),
        (npy(), r"c\.npz: not a saved consensus"),
        (b"garbage", r"c\.npz: not a saved consensus"),
        (b"", r"c\.npz: not a saved consensus"),
        (consensus_of().to_bytes()[:-200], r"c\.npz: not a saved consensus"),
        (None, r"c\.npz: No such file"),
    ],
)
def test_another_file_or_version_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "c.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadTable, match=message):
        Consensus.load(path)


def test_a_flipped_byte_is_noticed() -> None:
    whole = consensus_of().to_bytes()
    place = whole.index(b"concentration.npy") + 60
    with pytest.raises(BadTable, match="not a saved consensus"):
        Consensus.from_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    consensus_of().save(path)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        consensus_of(fit=Fit("m", {"bad": object()})).save(path)
    assert (path.read_bytes(), os.listdir(tmp_path)) == (before, ["c.npz"])


# -- checks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("probabilities", "message"),
    [
        (np.full((2, 2), 0.5), r"probabilities have shape \(2, 2\); expected \(3, 2\)"),
        (np.array([[0.5, 0.5], [0.5, 0.6], [0.5, 0.5]]), "probabilities of item '12' do not sum to 1"),
        (np.array([[0.5, 0.5], [0.5, 0.5], [np.nan, 0.5]]), "probabilities of item 'c' do not sum to 1"),
    ],
)
def test_probabilities_that_are_none_are_refused(probabilities: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        consensus_of(probabilities=probabilities)


# -- reading -------------------------------------------------------------------------------------------------


def test_a_consensus_is_read_like_a_dict_of_items() -> None:
    consensus = consensus_of()
    assert len(consensus) == 3
    assert list(consensus) == ["NA", "12", "c"]
    assert "NA" in consensus
    assert "n/a" not in consensus
    one = consensus["12"]
    assert (one.item, one.label, one.confidence) == ("12", "ü", 2 / 3)
    assert one.probabilities == {"x": 1 / 3, "ü": 2 / 3}
    assert consensus_of(items=(7, 8, 9))[np.int64(8)].item == consensus_of(items=(7, 8, 9))["8"].item == 8


def test_an_item_that_is_not_there_is_a_key_error_with_the_nearest_name() -> None:
    with pytest.raises(KeyError) as caught:
        consensus_of(items=("T000", "T001", "x"))["t00"]
    assert str(caught.value).startswith("the consensus has no item 't00'; did you mean 'T00")
    with pytest.raises(BadInput, match=r"^the consensus has no item 'nothing like it'$"):
        consensus_of()["nothing like it"]


def test_the_label_is_the_most_probable_class_and_the_first_of_equals() -> None:
    consensus = consensus_of()
    assert consensus.codes.tolist() == [1, 1, 0]
    assert consensus.labels.tolist() == ["ü", "ü", "x"]
    np.testing.assert_allclose(consensus.confidence, [0.7, 2 / 3, 0.5])


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet", "csv.gz", "jsonl.gz", "parquet.gz"])
def test_the_table_comes_back_from_a_file(tmp_path: Path, ending: str) -> None:
    consensus = consensus_of(items=("NA", "007", "two\nlines"))
    consensus.write(tmp_path / f"c.{ending}")
    table = read_table(tmp_path / f"c.{ending}", text=["item", "label"])
    assert table.column_names == ["item", "label", "confidence", "p_x", "p_ü"]
    assert table.column("item").to_pylist() == ["NA", "007", "two\nlines"]
    assert table.column("label").to_pylist() == ["ü", "ü", "x"]
    again = np.stack([table.column(name).cast("float64").to_numpy() for name in ("p_x", "p_ü")], axis=1)
    np.testing.assert_array_equal(again, consensus.probabilities)


# -- annotators ----------------------------------------------------------------------------------------------


def test_accuracy_and_its_interval_are_those_of_a_beta_where_one_class_counts() -> None:
    people = replace(
        consensus_of().annotators,
        concentration=np.array([[[8.0, 2.0, 1.0], [5, 5, 5]]] * 2),
        shares=np.array([1.0, 0.0]),
        labels=np.array([50, 60]),
    )
    beta = stats.beta(8, 2)  # the third option is no class: neither right nor wrong
    low, high = people.interval
    np.testing.assert_allclose(people.accuracy, beta.mean())
    np.testing.assert_allclose(low, beta.ppf(0.025), rtol=1e-6)
    np.testing.assert_allclose(high, beta.ppf(0.975), rtol=1e-6)


def test_accuracy_and_its_interval_agree_with_draws_from_the_dirichlets() -> None:
    people = replace(consensus_of().annotators, labels=np.array([50, 60]))
    rng = np.random.default_rng(1)
    draws = np.zeros((2, 200_000))
    for k in range(2):
        for j in range(2):
            row = rng.dirichlet(people.concentration[k, j], size=draws.shape[1])[:, :2]
            draws[k] += people.shares[j] * row[:, j] / row.sum(axis=1)
    np.testing.assert_allclose(people.accuracy, draws.mean(axis=1), atol=0.003)
    np.testing.assert_allclose(people.interval, np.quantile(draws, [0.025, 0.975], axis=1), atol=0.03)


def test_an_interval_within_half_an_answer_of_an_end_has_the_end() -> None:
    """Of 16 answers and the 4 that are expected of the crowd, a half is 1/40; a Beta interval holds neither 0 nor 1."""
    people = consensus_of().annotators
    for right, wrong, ends in ((20.0, 0.2, (None, 1.0)), (0.2, 20.0, (0.0, None)), (10.0, 10.0, (None, None))):
        one = replace(people, answers=np.array([[right, wrong, 0.0]] * 2), labels=np.array([16, 16]))
        mean, expected = one.accuracy[0], stats.beta(right + 4 * one.accuracy[0], wrong + 4 * (1 - one.accuracy[0]))
        assert abs(mean - right / (right + wrong)) < 0.03
        for found, end, level in zip(one.interval, ends, (0.025, 0.975), strict=True):
            assert found[0] == (end if end is not None else pytest.approx(expected.ppf(level), abs=0.02))


def test_the_frame_of_annotators_has_a_row_each() -> None:
    frame = consensus_of().annotators.frame()
    assert frame.columns.tolist() == ["annotator", "labels", "accuracy", "low", "high"]
    assert frame["annotator"].tolist() == ["007", "7"]
    assert ((frame["low"] < frame["accuracy"]) & (frame["accuracy"] < frame["high"])).all()


# -- confusion matrices --------------------------------------------------------------------------------------


def test_the_priors_mode_has_the_expected_accuracy_on_the_diagonal() -> None:
    for classes, options in ((10, 10), (2, 5)):
        pseudo = confusion.accurate_pseudo_counts(classes, options, 0.75)
        mode = confusion.posterior_mode(np.zeros((1, options, classes)), pseudo)[0].T
        np.testing.assert_allclose(np.diag(mode), 0.75)
        np.testing.assert_allclose(mode.sum(axis=1), 1)
        np.testing.assert_allclose(mode[0, 1:], 0.25 / (options - 1))
    assert confusion.accurate_pseudo_counts(10, 10, 0.75)[0, 0] == pytest.approx(2.7)  # Kerrigan 2021, section 4


def test_the_report_turns_counts_into_a_dirichlet_and_its_mode() -> None:
    annotations = Annotations.from_matrix(np.array([[0], [1]]))
    counts_kjl = np.array([[[3.0, 1.0], [0.0, 2.0]]])
    pseudo = np.array([[0.5, 0.25], [0.1, 0.3]])
    people = confusion.report(annotations, counts_kjl.transpose(0, 2, 1), pseudo, np.array([0.5, 0.5]))
    np.testing.assert_allclose(people.concentration, counts_kjl + pseudo)
    expected = (counts_kjl + pseudo) / (counts_kjl + pseudo).sum(axis=2, keepdims=True)
    np.testing.assert_allclose(people.confusion, expected)
    assert people.labels.tolist() == [2]


def test_what_was_learned_is_found_by_name_and_strangers_get_the_priors_mode() -> None:
    learned = consensus_of()
    none = np.empty(0, np.int32)
    annotations = Annotations(none, none, none, ("a",), ("7", "stranger"), ("x", "ü"), ("x", "ü", "unsure"))
    pseudo = confusion.accurate_pseudo_counts(2, 3, 0.75)
    pi_kjl = confusion.confusion_from(learned, annotations, pseudo).transpose(0, 2, 1)
    np.testing.assert_allclose(pi_kjl[0], learned.annotators.confusion[1])
    np.testing.assert_allclose(pi_kjl[1], pseudo / pseudo.sum(axis=1, keepdims=True))
    other = Annotations(none, none, none, ("a",), ("7",), ("x", "ü"), ("x", "ü"))
    shared = learned.annotators.confusion[1][:, :2]  # options go by name; what is left is renormalised
    np.testing.assert_allclose(
        confusion.confusion_from(learned, other, np.ones((2, 2)))[0].T, shared / shared.sum(axis=1, keepdims=True)
    )
    elsewhere = Annotations(none, none, none, ("a",), ("7",), ("x", "z"), ("x", "z"))
    assert confusion.confusion_from(learned, elsewhere, np.ones((2, 2))).tolist() == [[[0.5, 0.5], [0.5, 0.5]]]


def test_reported_accuracies_are_near_the_true_ones_with_many_classes() -> None:
    """With 30 classes and a few hundred labels each; the interval covers the truth for most."""
    rng = np.random.default_rng(12)
    truth = rng.integers(30, size=600)
    right = np.array([0.95, 0.8, 0.6])
    said = np.where(rng.random((600, 3)) < right, truth[:, None], rng.integers(30, size=(600, 3)))
    annotations = Annotations.from_matrix(said, classes=tuple(range(30)))
    people = DefaultCombiner().fit(Evidence(annotations, truth=truth)).annotators
    actual = (said == truth[:, None]).mean(axis=0)
    np.testing.assert_allclose(people.accuracy, actual, atol=0.01)
    low, high = people.interval
    assert ((low < right) & (right < high)).all()
    assert (low < people.accuracy).all()
    assert (people.accuracy < high).all()
