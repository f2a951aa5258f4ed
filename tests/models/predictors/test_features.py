"""Features of items: as scikit-learn and numpy make them by hand, each made once, and never silently zero."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from hitl.annotations import Floats
from hitl.errors import BadInput
from hitl.models.predictors import features, transforms
from hitl.models.predictors.features import Embedder, VectorCache, embed, rows, texts
from hitl.models.predictors.transforms import tfidf_svd

WORDS = ["storm", "sea", "bread", "price", "goal", "minute", "battery", "cell", "river", "tall", "cat", "dog"]


def sentences(rng: np.random.Generator, count: int) -> list[str]:
    return [" ".join(rng.choice(WORDS, rng.integers(1, 9))) for _ in range(count)]


# -- made of all items ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dimensions", [1, 5, None])
def test_texts_are_those_of_scikit_learn(dimensions: int | None) -> None:
    said = sentences(np.random.default_rng(0), 60)
    expected = TruncatedSVD(dimensions or len(WORDS), random_state=0).fit_transform(
        TfidfVectorizer().fit_transform(said)
    )
    found, left_out = embed(texts([f"i{n}" for n in range(60)], said), dimensions=dimensions)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert left_out == {}
    np.testing.assert_array_equal(found, tfidf_svd(said, dimensions))  # the same texts, the same numbers


def test_dimensions_are_as_many_as_there_are_texts_or_words() -> None:
    assert tfidf_svd(["red cat", "red dog", "?"]).shape == (3, 2)
    assert tfidf_svd(["red", "red", "?"])[:2].tolist() == [[1.0], [1.0]]
    assert tfidf_svd(["red cat"]).shape == (1, 1)
    assert np.ptp(tfidf_svd(["red cat", "red cat"]), axis=0).max() < 1e-12


def test_a_text_without_a_word_is_left_out() -> None:
    found, left_out = embed(texts(["a", "b", "c", "d", "e"], ["red cat", "! x", "", None, "cat"]), dimensions=2)
    assert left_out == {
        "c": "'text' is empty",
        "d": "'text' is empty",
        "b": "its text has no word of two or more letters",
    }
    assert np.isnan(found).all(axis=1).tolist() == [False, True, False]  # of a, b and e
    with pytest.raises(BadInput, match="none of the 2 texts has a word"):
        embed(texts(["a", "b"], ["?", "!"]))
    with pytest.raises(BadInput, match=r"no features of 4 items \('a': 'text' is empty; .*; and 1 more\)"):
        embed(texts(list("abcd"), [None, "", " ", []]))


def test_numbers_are_scaled_and_categories_are_one_hot() -> None:
    rng = np.random.default_rng(1)
    size, place = 1e6 + rng.standard_normal(30), rng.choice(["b", "a", "c"], 30)
    pair = rng.standard_normal((30, 2))
    table = list(zip(size, map(str, size), place, pair.tolist(), [7] * 30, [True, False] * 15, strict=True))
    found, _ = embed(rows([str(n) for n in range(30)], table, ["x", "as text", "place", "pair", "same", "yes"]))
    scaled = StandardScaler().fit_transform(np.column_stack([size, size]))
    hot = OneHotEncoder(sparse_output=False).fit_transform(place[:, None])
    yes = OneHotEncoder(sparse_output=False).fit_transform(np.array([[True], [False]] * 15))
    expected = np.hstack([scaled, hot, StandardScaler().fit_transform(pair), np.zeros((30, 1)), yes])
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_a_column_of_names_is_refused() -> None:
    many = [(f"name {n}",) for n in range(1001)]
    with pytest.raises(BadInput, match="column 'who': 1,001 different values; expected numbers, or 1,000 categories"):
        embed(rows([str(n) for n in range(1001)], many, ["who"]))


@given(st.integers(0, 10_000), st.integers(1, 6))
def test_principal_components_are_those_of_scikit_learn(seed: int, dimensions: int) -> None:
    rng = np.random.default_rng(seed)
    x_nd = rng.standard_normal((20, 6)) @ np.diag([5.0, 3, 2, 1, 0.5, 0.1]) + rng.standard_normal(6)
    pca = PCA(dimensions, svd_solver="full").fit(x_nd)
    largest = np.abs(pca.components_).argmax(axis=1)
    sign = np.sign(pca.components_[np.arange(dimensions), largest])
    np.testing.assert_allclose(transforms.principal(x_nd, dimensions), pca.transform(x_nd) * sign, atol=1e-8)


# -- made item by item ---------------------------------------------------------------------------------------


class Lengths:
    """An embedder that counts letters, and what it has seen."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def __call__(self, said: list[str]) -> Floats:
        self.seen.append(said)
        return np.array([[len(text), text.count("a")] for text in said], dtype=np.float64)

    def made(self) -> Embedder:
        return Embedder(self)


NAMES = [f"i{n}" for n in range(10)]
SAID = ["a" * n + "b" for n in range(10)]


def test_each_item_is_seen_once_in_batches(tmp_path: Path) -> None:
    model, cache = Lengths(), VectorCache(tmp_path / "cache", "lengths")
    events: list[tuple[int, int | None]] = []
    found, _ = embed(
        texts(NAMES[:7], SAID[:7]),
        model.made,
        store=cache,
        batch_size=3,
        progress=lambda _, n, of: events.append((n, of)),
    )
    assert found.tolist() == [[n + 1, n] for n in range(7)]
    assert model.seen == [SAID[:3], SAID[3:6], SAID[6:7]]
    assert events == [(0, 7), (3, 7), (6, 7), (7, 7)]
    model.seen.clear()
    again = VectorCache(tmp_path / "cache", "lengths")
    found, _ = embed(texts(NAMES[::-1], SAID[::-1]), model.made, store=again)
    assert found.tolist() == [[n + 1, n] for n in range(10)][::-1]
    assert model.seen == [SAID[:6:-1]]
    other = VectorCache(tmp_path / "cache", "another model")
    assert not other.has(NAMES, texts(NAMES, SAID).digests).any()


def broken(kind: str) -> Any:
    def run(said: Sequence[str]) -> Any:
        bad = [n for n, text in enumerate(said) if len(text) in (4, 5, 9)]
        if kind == "raises" and bad:
            raise ValueError(f"cannot read {said[bad[0]]}")
        x = np.array([[len(text), 1.0] for text in said])
        if kind == "nan":
            x[bad, 1] = np.nan
        if kind == "infinite":
            x[bad, 1] = np.inf
        if kind == "wide" and bad:
            return np.ones((len(said), 3))
        if kind == "short" and bad:
            return x[:-1]
        if kind == "text" and bad:
            return [["no"] * 2] * len(said)
        return x

    return run


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("raises", "ValueError: cannot read aaab"),
        ("nan", "the model returns NaN or infinite values"),
        ("infinite", "the model returns NaN or infinite values"),
        ("wide", "the model gives shape (1, 3); expected (1, 2), a row each"),
        ("short", "the model gives shape (0, 2); expected (1, 2), a row each"),
        ("text", "ValueError: could not convert string to float: 'no'"),
    ],
)
def test_an_item_that_breaks_the_model_is_named_and_the_others_are_made(kind: str, why: str) -> None:
    found, left_out = embed(texts(NAMES, SAID), lambda: Embedder(broken(kind)), batch_size=2)
    assert list(left_out) == ["i3", "i4", "i8"]
    assert left_out["i3"] == why
    well = [n for n, name in enumerate(NAMES) if name not in left_out]
    assert found[well].tolist() == [[n + 1, 1] for n in well]
    assert np.isnan(found[[3, 4, 8]]).all()


@pytest.mark.parametrize("ahead", [0, 3])
def test_other_processes_make_the_same(ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many batches are under way; what a batch of before says of the width holds for all."""
    monkeypatch.setattr(features, "MAX_AHEAD", ahead)
    for kind in ("raises", "nan", "wide", "short", "text"):
        expected, left_out = embed(texts(NAMES, SAID), lambda kind=kind: Embedder(broken(kind)), batch_size=2)
        with ThreadPoolExecutor(3) as pool:
            found, other = embed(
                texts(NAMES, SAID), lambda kind=kind: Embedder(broken(kind)), batch_size=2, executor=pool
            )
        np.testing.assert_array_equal(found, expected)
        assert other == left_out


def test_a_model_is_made_once_for_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def make() -> Embedder:
        made.append(1)
        return Embedder(lambda said: np.ones((len(said), 2)))

    with ThreadPoolExecutor(1) as pool:
        for runs in (1, 2):
            embed(texts(NAMES, SAID), make, batch_size=2, executor=pool)
            assert len(made) == runs


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (lambda said: [[1.0] * len(text) for text in said], "returns different numbers of values"),
        (lambda said: np.ones(len(said)), r"the model gives shape \(1,\); expected \(1, D\), a row each"),
        (lambda said: np.ones((len(said), 0)), r"the model gives shape \(1, 0\)"),
        (lambda said: None, "ValueError|TypeError|the model gives shape"),
    ],
)
def test_a_model_that_makes_nothing_of_any_item_is_an_error(said: Any, why: str) -> None:
    with pytest.raises(BadInput, match=f"no features of 10 items .*{why}"):
        embed(texts(NAMES, SAID), lambda: Embedder(said))


def test_numbers_of_another_length_than_those_that_are_kept_are_refused(tmp_path: Path) -> None:
    cache = VectorCache(tmp_path / "cache", "model")
    embed(texts(NAMES[:5], SAID[:5]), Lengths().made, store=cache)
    found, left_out = embed(texts(NAMES, SAID), lambda: Embedder(lambda said: np.ones((len(said), 3))), store=cache)
    assert list(left_out) == NAMES[5:]
    assert left_out["i5"] == "the model gives shape (1, 3); expected (1, 2), a row each"
    assert found[:5].tolist() == [[n + 1, n] for n in range(5)]


def test_a_cache_that_is_something_else(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no database " * 100)
    with pytest.raises(BadInput, match=r"cache: cannot be used as a cache: .*; remove it"):
        VectorCache(tmp_path / "cache", "x")
