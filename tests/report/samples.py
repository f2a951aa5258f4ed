"""Evidence, consensus and pages that the tests of the report share, and how a browser would see a page."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import numpy as np

from hitl.annotations import Annotations
from hitl.consensus import AnnotatorReport, Consensus
from hitl.evidence import Evidence
from hitl.report import QuestionPage, Report, render

EVIL = "<script>alert('x')</script>"
WHEN = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


class Page(HTMLParser):
    """What a browser would see: start tags with attributes, and the text of scripts and of the rest apart."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.words: list[str] = []
        self._inside = ""
        self.feed(html)
        self.close()
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else self._inside

    def handle_endtag(self, tag: str) -> None:
        self._inside = "" if tag == self._inside else self._inside

    def handle_data(self, data: str) -> None:
        {"script": self.scripts, "style": self.styles}.get(self._inside, self.words).append(data)

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.scripts[0])
        return found

    def count(self, tag: str, attribute: str) -> int:
        return sum(attribute in attributes for name, attributes in self.tags if name == tag)


def seen(*questions: QuestionPage, **more: Any) -> Page:
    return Page(render(Report("Title", questions, **more)))


def combined(annotations: Annotations, **more: Any) -> Consensus:
    """A consensus from vote fractions, with confusion counts under it."""
    j, options = annotations.n_classes, annotations.n_options
    votes = np.full((annotations.n_items, j), 0.1)
    vote = annotations.label < j
    np.add.at(votes, (annotations.item[vote], annotations.label[vote]), 1)
    q_nj = votes / votes.sum(axis=1, keepdims=True)
    counts = np.zeros((annotations.n_annotators, j, options))
    for true in range(j):
        np.add.at(counts[:, true], (annotations.annotator, annotations.label), q_nj[annotations.item, true])
    concentration = counts + 0.5
    shares = q_nj.mean(axis=0)
    people = AnnotatorReport(
        annotations.annotators,
        annotations.classes,
        annotations.options,
        concentration,
        concentration / concentration.sum(axis=2, keepdims=True),
        annotations.labels_per_annotator,
        shares,
    )
    return Consensus(annotations.items, annotations.classes, q_nj, people, shares, **more)


def sample(n: int = 60, k: int = 7, classes: tuple[str, ...] = ("cat", "dog"), seed: int = 0, unsure: bool = False):
    """(page, truth): `each` annotators label every item, right four times in five."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, len(classes), n).astype(np.int32)
    each = min(k, 5)
    item = np.repeat(np.arange(n), each)
    annotator = ((np.arange(n)[:, None] * 3 + np.arange(each)) % k).ravel()
    label = np.where(rng.random(item.size) < 0.8, truth[item], rng.integers(0, len(classes), item.size))
    options = (*classes, "unsure") if unsure else classes
    if unsure:
        label[rng.random(item.size) < 0.1] = len(classes)
    annotations = Annotations(
        item.astype(np.int32),
        annotator.astype(np.int32),
        label.astype(np.int32),
        tuple(f"item-{i}" for i in range(n)),
        tuple(f"person {i}" for i in range(k)),
        classes,
        options,
    )
    return QuestionPage("animal", Evidence(annotations), combined(annotations)), truth


def pool(n_items: int = 3, n_annotators: int = 0) -> QuestionPage:
    none = np.zeros(0, np.int32)
    people = tuple(range(n_annotators))
    annotations = Annotations(none, none, none, tuple(range(n_items)), people, ("a", "b"), ("a", "b"))
    return QuestionPage("q", Evidence(annotations), combined(annotations))


def require_valid_figure(figure: dict[str, Any]) -> None:
    """Plotly takes the figure, and both axes say what they are."""
    import plotly.graph_objects as go

    go.Figure(json.loads(re.sub(r'"--[a-z0-9/.]+"', '"red"', json.dumps(figure))))  # colours: names of CSS variables
    for axis in ("xaxis", "yaxis"):
        assert figure["layout"][axis]["title"]["text"]
