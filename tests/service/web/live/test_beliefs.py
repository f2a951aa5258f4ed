"""Live beliefs are those of a refit, whatever annotators do, and those of a cycle after one."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from hitl.connectors.catalog import connector_of
from hitl.consensus import Consensus
from hitl.models.default import DefaultCombiner
from hitl.plan import Plan
from hitl.project import stored_evidence
from hitl.service.web.live import LiveFigures, puller
from hitl.service.web.live import beliefs as live_beliefs
from hitl.service.web.live.beliefs import Beliefs, Heard
from hitl.service.web.live.puller import Puller
from hitl.service.web.projects import Projects, Watched
from hitl.store import Store
from tests.service.web.live.serving import HEADER, answer, cycle, served, tables, until
from tests.store.conftest import postgres, postgres_url

__all__ = ["postgres", "postgres_url"]


class Followed:
    """A project whose puller has no thread: each turn is a call."""

    def __init__(self, config: Path) -> None:
        self.config = config
        self.projects = Projects([config])
        self.watched: Watched = self.projects["p"]
        self.events: list[tuple[str, dict[str, object]]] = []
        self.puller = Puller(self.watched, lambda name, data: self.events.append((name, dict(data))))
        self.puller._look()

    @property
    def beliefs(self) -> Beliefs:
        return self.puller.beliefs

    @property
    def store(self) -> Store:
        return self.watched.store

    def pull(self) -> None:
        """What a hint brings."""
        self.puller._pull()
        assert self.puller.figures.trouble is None
        self.puller._look()

    def rows(self) -> list[list[str]]:
        with (self.config.parent / "annotations.csv").open() as file:
            return list(csv.reader(file))[1:]

    def write(self, rows: list[list[str]]) -> None:
        text = HEADER + "".join(",".join(row) + "\n" for row in rows)
        (self.config.parent / "annotations.csv").write_text(text)

    def refit(self) -> tuple[tuple[object, ...], np.ndarray]:
        questions = connector_of(self.watched.settings.source, self.config.parent).questions()
        evidence = stored_evidence(self.watched.settings, self.store, questions)["label"]
        return evidence.annotations.items, DefaultCombiner().fit(evidence).probabilities

    def apart(self) -> tuple[float, float]:
        """The largest and the mean difference to a refit."""
        items, fitted = self.refit()
        now = np.array([self.beliefs.belief("label", str(item)) for item in items])
        return float(np.abs(now - fitted).max()), float(np.abs(now - fitted).mean())


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Callable[..., Followed]]:
    made: list[Followed] = []

    def made_of(items: int = 40, url: str = "sqlite:///hitl.db", more: str = "") -> Followed:
        config = tables(tmp_path / "p", items, url, more)
        cycle(config)
        made.append(Followed(config))
        return made[-1]

    yield made_of
    for one in made:
        one.projects.stop()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_stream_of_answers_edits_and_withdrawals_ends_where_a_refit_does(
    follow: Callable[..., Followed], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    url = "sqlite:///hitl.db" if kind == "sqlite" else str(request.getfixturevalue("postgres_url"))
    followed = follow(60, url)
    monkeypatch.setattr(Puller, "_may_load", lambda self: False)  # label by label alone
    rng = random.Random(7)
    for _ in range(12):
        rows = followed.rows()
        rng.choice(rows)[2] = rng.choice(["yes", "no"])
        rows.pop(rng.randrange(len(rows)))
        taken = {(item, who) for item, who, _ in rows}
        for _ in range(8):
            n = rng.randrange(60)
            new = (f"i{n}", rng.choice(["dee", "eve", "fay"]))
            if new not in taken:
                taken.add(new)
                rows.append([*new, "yes" if (n + (rng.random() < 0.15)) % 2 else "no"])
        followed.write(rows)
        followed.pull()
    assert followed.puller.figures.labels > 50
    assert followed.puller.figures.loads == 1
    largest, mean = followed.apart()
    print("label by label", largest, mean)
    assert largest <= 0.25
    assert mean <= 0.05
    before = {item: followed.beliefs.belief("label", str(item)) for item in followed.refit()[0]}
    monkeypatch.undo()
    followed.puller._load_at = followed.puller._moved_at = 0.0
    followed.puller._look()  # everything read again
    assert followed.puller.figures.loads == 2
    largest, mean = followed.apart()
    print("read again", largest, mean)
    assert largest <= 0.05
    assert mean <= 0.01
    snapshot = followed.watched.snapshot
    assert snapshot is not None
    assert set(snapshot.names.to_pylist()) == set(map(str, before))


def test_what_the_evidence_says_is_what_was_taken_in(
    follow: Callable[..., Followed], monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = follow()
    monkeypatch.setattr(Puller, "_may_load", lambda self: False)
    rows = followed.rows()
    rows[0][2] = "yes" if rows[0][2] == "no" else "no"
    gone = rows.pop(5)
    rows += [[gone[0], "zoe", "yes"], ["i7", "zoe", "no"], ["i8", "zoe", ""]]  # the last is a skip
    followed.write(rows)
    followed.pull()
    one = followed.beliefs._questions["label"]
    assert one.following is not None
    held = one.following.evidence().annotations.table().to_pylist()
    assert {(row["item"], row["annotator"], row["label"]) for row in held} == {tuple(row) for row in rows if row[2]}
    assert [name for name, _ in followed.events] == ["belief"]
    assert set(followed.events[0][1]["items"]) == {rows[0][0], gone[0], "i7"}  # type: ignore[call-overload]


def test_known_truth_new_items_and_new_classes_are_read_anew(follow: Callable[..., Followed]) -> None:
    followed = follow()
    folder = followed.config.parent
    (folder / "truth.csv").write_text("item,label\ni3,yes\n")
    followed.puller._load_at = followed.puller._moved_at = 0.0
    followed.pull()
    assert followed.puller.figures.loads == 2
    assert followed.beliefs.belief("label", "i3").tolist() == [0, 1]  # type: ignore[union-attr]
    answer(followed.config, "new,ann,yes")
    followed.puller._load_at = followed.puller._moved_at = 0.0
    followed.pull()
    assert followed.beliefs.belief("label", "new") is not None
    snapshot = followed.watched.snapshot
    assert snapshot is not None
    assert "new" in snapshot.item_place
    assert followed.beliefs.belief("label", "never") is None
    assert followed.beliefs.belief("never", "i3") is None


def test_a_cycle_stays_the_truth_and_the_difference_is_kept(
    follow: Callable[..., Followed], monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = follow()
    monkeypatch.setattr(Puller, "_may_load", lambda self: False)
    answer(followed.config, *(f"i{n},eve,{'yes' if n % 2 else 'no'}" for n in range(20)))
    followed.pull()
    live = {n: followed.beliefs.belief("label", f"i{n}") for n in range(40)}
    monkeypatch.undo()
    followed.puller._load_at = followed.puller._moved_at = 0.0
    cycle(followed.config)
    followed.puller._look()
    found = followed.beliefs.differences["label"]
    assert found.cycle == 2
    assert found.items == 40
    settled = followed.store.latest("p")
    assert settled is not None
    consensus = settled[0]["label"]
    apart = [np.abs(live[n] - consensus.probabilities[consensus.items.index(f"i{n}")]).max() for n in range(40)]
    assert found.largest == pytest.approx(max(apart), abs=1e-12)
    assert 0 < found.mean <= found.largest <= 0.1
    for n in range(40):
        row = consensus.items.index(f"i{n}")
        np.testing.assert_array_equal(followed.beliefs.belief("label", f"i{n}"), consensus.probabilities[row])
    assert [name for name, _ in followed.events][-2:] == ["cycle", "plan"]


def test_an_edited_answer_counts_after_everything_was_read_again(follow: Callable[..., Followed]) -> None:
    """As many labels as the last cycle had, of the same annotators: its consensus is not that of the labels of now."""
    followed = follow()
    rows = followed.rows()
    for row in rows:
        if row[0] == "i4":
            row[2] = "yes"
    followed.write(rows)
    before = followed.beliefs.belief("label", "i4")
    followed.puller._load_at = followed.puller._moved_at = 0.0
    followed.pull()
    assert followed.puller.figures.loads == 2
    now = followed.beliefs.belief("label", "i4")
    assert before is not None
    assert now is not None
    assert before.argmax() == 0
    assert now.argmax() == 1
    assert followed.apart()[0] <= 0.05


def test_what_others_pull_is_found(follow: Callable[..., Followed]) -> None:
    from hitl.cycle import pull

    followed = follow()
    answer(followed.config, "i1,eve,yes", "i1,fay,yes")
    with followed.store.lease("p") as lease:
        pull(lease, followed.store, connector_of(followed.watched.settings.source, followed.config.parent))
    followed.puller._load_at = followed.puller._moved_at = 0.0
    followed.puller._look()
    largest, _ = followed.apart()
    assert largest <= 0.05
    assert followed.events == [("reload", {})]


def test_a_method_that_does_not_follow_is_fitted_anew(follow: Callable[..., Followed]) -> None:
    followed = follow(more='[combine]\nmethod = "majority"\n')
    before = followed.beliefs.belief("label", "i4")
    answer(followed.config, "i4,eve,yes", "i4,fay,yes", "i4,zoe,yes")
    followed.pull()
    followed.puller._load_at = followed.puller._moved_at = 0.0
    followed.puller._look()
    now = followed.beliefs.belief("label", "i4")
    assert before is not None
    assert now is not None
    assert now[1] > before[1]


def test_a_consensus_that_an_earlier_version_learned_is_fitted_anew(
    follow: Callable[..., Followed], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Store.latest

    def by_another_method(store: Store, project: str) -> tuple[dict[str, Consensus], Plan] | None:
        found = kept(store, project)
        assert found is not None
        settings = {**found[0]["label"].fit.settings, "method": "pl-em"}
        return {"label": replace(found[0]["label"], fit=replace(found[0]["label"].fit, settings=settings))}, found[1]

    monkeypatch.setattr(Store, "latest", by_another_method)
    followed = follow()
    assert followed.apart()[0] < 1e-6
    answer(followed.config, "i4,eve,yes", "i4,fay,yes", "i4,zoe,yes")
    followed.pull()
    followed.puller._load_at = followed.puller._moved_at = 0.0
    followed.puller._look()
    assert followed.puller.figures.trouble is None
    assert followed.apart()[0] <= 0.05


def test_many_labels_at_once_are_read_anew(follow: Callable[..., Followed], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_beliefs, "AT_ONCE", 5)
    followed = follow()
    answer(followed.config, *(f"i{n},eve,yes" for n in range(6)))
    followed.puller._load_at = followed.puller._moved_at = 0.0
    followed.pull()
    assert followed.puller.figures.labels == 0
    assert followed.puller.figures.loads == 2
    assert followed.beliefs.take_in(Heard(items={"i1": None})) == {}


def test_where_a_load_takes_long_a_belief_is_told_before_it_and_after(
    follow: Callable[..., Followed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(puller, "QUICK", 0.0)
    monkeypatch.setattr(puller, "OVERDUE", 1e9)
    followed = follow()
    followed.puller._load_at = 0.0
    answer(followed.config, "i4,eve,yes")
    followed.puller.wake()  # another hint waits: no load yet
    followed.pull()
    told = ("belief", {"question": "label", "items": ["i4"]})
    assert followed.events == [told]
    assert followed.puller.figures.loads == 1
    followed.puller._hinted.clear()
    followed.puller._look()
    assert followed.events == [told, told]
    assert followed.puller.figures.loads == 2
    followed.puller._load_at = 0.0
    followed.puller._look()
    assert followed.puller.figures.loads == 2, "nothing has changed since"


def test_figures_are_there_for_prometheus(tmp_path: Path) -> None:
    config = tables(tmp_path / "p")
    cycle(config)
    with served(config) as service:
        answer(config, "i4,eve,yes")
        service.hint()
        until(lambda: service.live.figures("p").labels)
        cycle(config)
        until(lambda: service.live.differences("p"))
        registry = CollectorRegistry()
        registry.register(LiveFigures(service.live))
        assert registry.get_sample_value("hitl_live_pulls_total", {"project": "p"}) == service.live.figures("p").pulls
        found = registry.get_sample_value("hitl_live_difference_largest", {"project": "p", "question": "label"})
        assert found == service.live.differences("p")["label"].largest
