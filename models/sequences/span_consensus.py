"""The spans of texts that annotators' labels support, and how probable each is.

    found          spans on the most probable path of each text (Viterbi)
    p(span)      = p(z_first = B, z = I from there to its end, z_end is not I | all labels of the text)
    p(text)      = p(the whole path | all labels of the text)

with z the true classes of its tokens, by forward passes in which the span is known (`learned_chain.ChainPosterior`). A
method that knows no sequence gives beliefs of tokens; they are taken as independent, but for the steps that spans rule
out. Layers of kinds that lie over one another are independent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from hitl.annotations import Floats, Ints, Name
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.combiner import Combiner
from hitl.models.priors import Mask
from hitl.models.priors.dirichlet_chain import NEVER
from hitl.models.priors.markov_chain import MarkovChain, Sequences
from hitl.models.sequences.bsc_seq import BSCSeq
from hitl.models.sequences.learned_chain import ChainPosterior
from hitl.models.sequences.spans import steps_of_spans
from hitl.shown import Shown, counted
from hitl.texts.span_labels import FoundSpan, Indices, Layer, SpanLabels, TextParts, Tokens
from hitl.texts.span_tables import found_table


@runtime_checkable
class Chained(Protocol):
    """A combiner that knows the posterior of whole sequences."""

    def chain_posterior(self, consensus: Consensus, evidence: Evidence) -> ChainPosterior:
        """The chain that was learned, and what is known of each item."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class SpanConsensus(Shown):
    """Which spans are right, and how good everyone is.

    Attributes:
        labels: what annotators marked.
        layers: the consensus about the tokens, for each layer of kinds.
        candidates: spans of the consensus, and all others that an annotator marked, by document and place.
        text_probability: (D,) probability that all spans of a text are right, and no others; NaN without an answer.
    """

    labels: SpanLabels
    layers: tuple[Consensus, ...]
    candidates: tuple[FoundSpan, ...]
    text_probability: Floats

    @cached_property
    def spans(self) -> tuple[FoundSpan, ...]:
        """Those of the consensus."""
        return tuple(span for span in self.candidates if span.found)

    def __str__(self) -> str:
        sure = [span.probability for span in self.spans]
        mean = f"; mean confidence {np.mean(sure):.3f}" if sure else ""
        fits = "; ".join(str(layer.fit) for layer in self.layers)
        return f"{counted(len(sure), 'span')} in {counted(self._answered, 'text')}{mean}; {fits}"

    @property
    def _answered(self) -> int:
        return int((~np.isnan(self.text_probability)).sum())

    def table(self) -> pa.Table:
        """Arrow table of the consensus: document, start, end, label, confidence, marked, answers, text."""
        return found_table(self.candidates, dict(zip(self.labels.documents, self.labels.texts, strict=True)))

    def texts(self) -> pa.Table:
        """Arrow table, a row for each text: document, spans, answers, confidence (that all of its spans are right)."""
        count: dict[Name, int] = {}
        for span in self.spans:
            count[span.document] = count.get(span.document, 0) + 1
        return pa.table(
            {
                "document": pa.array(self.labels.documents),
                "spans": pa.array([count.get(name, 0) for name in self.labels.documents]),
                "answers": pa.array(self.labels.answers_d),
                "confidence": pa.array(self.text_probability, mask=np.isnan(self.text_probability)),
            }
        )

    def annotators(self) -> pa.Table:
        """Arrow table: annotator, texts, spans, precision, recall, f1; by how probable each span is.

        Precision is the expected share of their spans that are right, recall the expected share of the right ones, in
        the texts they answered, that they marked. Their own labels are among those that say what is right.
        """
        labels = self.labels
        p_of = {(span.document, span.start, span.end, span.kind): span.probability for span in self.candidates}
        right_d = np.zeros(len(labels.documents))
        place = {name: number for number, name in enumerate(labels.documents)}
        for span in self.candidates:
            right_d[place[span.document]] += span.probability
        document_a, annotator_a = labels.answer_a2.T
        answer_s, start_s, end_s, kind_s = labels.span_s4.T
        named = zip(document_a[answer_s], start_s.tolist(), end_s.tolist(), kind_s, strict=True)
        p_s = [p_of[labels.documents[d], start, end, labels.kinds[kind]] for d, start, end, kind in named]
        k = len(labels.annotators)
        marked_k = np.bincount(annotator_a[answer_s], minlength=k)
        right_k = np.bincount(annotator_a[answer_s], weights=p_s, minlength=k)
        there_k = np.bincount(annotator_a, weights=right_d[document_a], minlength=k)
        with np.errstate(invalid="ignore"):
            shares = {"precision": right_k / marked_k, "recall": right_k / there_k}
            shares["f1"] = 2 * right_k / (marked_k + there_k)
        return pa.table(
            {
                "annotator": pa.array(labels.annotators),
                "texts": np.bincount(annotator_a, minlength=k),
                "spans": marked_k,
                **{name: pa.array(share, mask=np.isnan(share)) for name, share in shares.items()},
            }
        )


def combined(labels: SpanLabels, method: Combiner | None = None) -> SpanConsensus:
    """The spans that the labels support, by a method for items or sequences; default: `BSCSeq()`.

    Raises BadEvidence where there are no labels.
    """
    method = BSCSeq() if method is None else method
    judged = labels.known_d | (labels.answers_d > 0)
    results, found = [], list[FoundSpan]()
    probability = np.where(judged, 1.0, np.nan)
    for layer in labels.layers:
        consensus, posterior = _fitted(layer.evidence, method)
        results.append(consensus)
        path = posterior.path
        probability *= _of_whole_texts(labels, posterior, path)
        found += _candidates(labels, layer, posterior, path, judged)
    place = {name: number for number, name in enumerate(labels.documents)}
    found.sort(key=lambda span: (place[span.document], span.start, span.end, str(span.kind)))
    return SpanConsensus(labels, tuple(results), tuple(found), probability)


def of_texts(evidence: Evidence, method: Combiner | None = None) -> Consensus:
    """The consensus about texts as items (`SpanLabels.of_texts`), by a method for their tokens; default: `BSCSeq()`.

    Each text has the beliefs of the token it stands for, and `spans` are those of this layer.
    """
    parts = evidence.parts
    assert isinstance(parts, TextParts)
    labels, layer, token_d = parts.labels, parts.layer, parts.token_d
    tokens, posterior = _fitted(layer.evidence, BSCSeq() if method is None else method)
    q_dj = np.eye(len(tokens.classes))[np.zeros(len(token_d), int)]
    q_dj[token_d >= 0] = tokens.probabilities[token_d[token_d >= 0]]
    judged = labels.known_d | (labels.answers_d > 0)
    return replace(
        tokens.judging(labels.documents, q_dj),
        annotators=replace(tokens.annotators, labels=evidence.annotations.labels_per_annotator),
        parameters={},
        spans=tuple(_candidates(labels, layer, posterior, posterior.path, judged)),
    )


def _fitted(evidence: Evidence, method: Combiner) -> tuple[Consensus, ChainPosterior]:
    """The consensus of the tokens, and the posterior of their sequences."""
    if isinstance(method, Chained):
        consensus = method.fit(evidence)
        return consensus, method.chain_posterior(consensus, evidence)
    assert evidence.sequence is not None
    consensus = method.fit(replace(evidence, sequence=None))
    allowed_rj = steps_of_spans(consensus.classes)
    assert allowed_rj is not None
    steps_rj = np.where(allowed_rj, 1.0, np.exp(NEVER))
    chain = MarkovChain(Sequences(evidence.sequence), steps_rj[0], steps_rj[1:])
    with np.errstate(divide="ignore"):
        return consensus, ChainPosterior(np.log(consensus.probabilities), chain)


def _of_whole_texts(labels: SpanLabels, posterior: ChainPosterior, path: Ints) -> Floats:
    """(D,) probability of the path of each text; 1 for a text without a token."""
    sequences = posterior.chain.sequences
    number = labels.tokens.document_t[sequences.rows[sequences.start[:-1]]]

    def as_found(event: int, message_tj: Floats) -> None:
        rows = sequences.rows[sequences.start[event] : sequences.start[event + 1]]
        message_tj[np.arange(message_tj.shape[1]) != path[rows][:, None]] = -np.inf

    probability = np.ones(len(labels.documents))
    probability[number] = posterior.probabilities(np.arange(len(number)), as_found)
    return probability


def _candidates(
    labels: SpanLabels, layer: Layer, posterior: ChainPosterior, path: Ints, judged: Mask
) -> list[FoundSpan]:
    """Spans of this layer on the path, and those that annotators marked in judged texts."""
    tokens = labels.tokens
    marked = _marked(labels, layer, tokens)
    on_path = {span for span in _on_path(tokens, path) if judged[tokens.document_t[span[0]]]}
    spans = sorted({*marked, *on_path})
    if not spans:
        return []
    span_e3 = np.array(spans)
    answers = labels.answers_d
    probability = _of_spans(posterior, tokens, span_e3)
    document_e = tokens.document_t[span_e3[:, 0]]
    return [
        FoundSpan(
            labels.documents[document],
            int(tokens.start_t[first]),
            int(tokens.end_t[last - 1]),
            layer.kinds[kind],
            float(p),
            marked.get((first, last, kind), 0),
            int(answers[document]),
            (first, last, kind) in on_path,
        )
        for (first, last, kind), p, document in zip(spans, probability, document_e, strict=True)
    ]


def _of_spans(posterior: ChainPosterior, tokens: Tokens, span_e3: Indices) -> Floats:
    """(E,) probability of spans (first token, one past the last, kind)."""
    sequences = posterior.chain.sequences
    first_token = sequences.rows[sequences.start[:-1]]
    of_e = np.searchsorted(tokens.document_t[first_token], tokens.document_t[span_e3[:, 0]])

    def is_there(event: int, message_tj: Floats) -> None:
        first, last, kind = span_e3[event]
        begun = first_token[of_e[event]]
        begins, goes_on = 1 + 2 * kind, 2 + 2 * kind
        others = np.arange(message_tj.shape[1])
        message_tj[first - begun, others != begins] = -np.inf
        message_tj[first - begun + 1 : last - begun, others != goes_on] = -np.inf
        message_tj[last - begun : last - begun + 1, goes_on] = -np.inf

    return posterior.probabilities(of_e, is_there)


def _marked(labels: SpanLabels, layer: Layer, tokens: Tokens) -> dict[tuple[int, int, int], int]:
    """First token, one past the last and kind (of the layer) of all spans that annotators marked: how many did."""
    code = {labels.kinds.index(kind): number for number, kind in enumerate(layer.kinds)}
    span_s4 = labels.span_s4
    first, last = tokens.within(labels.answer_a2[span_s4[:, 0], 0], span_s4[:, 1], span_s4[:, 2])
    count: dict[tuple[int, int, int], int] = {}
    for begin, end, kind in zip(first.tolist(), last.tolist(), span_s4[:, 3].tolist(), strict=True):
        if kind in code:
            span = begin, end, code[kind]
            count[span] = count.get(span, 0) + 1
    return count


def _on_path(tokens: Tokens, path: Ints) -> list[tuple[int, int, int]]:
    """First token, one past the last and kind of the spans on the path. Known truth may begin one inside."""
    begins = np.flatnonzero(path % 2 == 1)
    goes_on = (path > 0) & (path % 2 == 0)
    goes_on[1:] &= tokens.document_t[1:] == tokens.document_t[:-1]
    ends = np.flatnonzero(~goes_on)
    last = np.append(ends, len(path))[np.searchsorted(ends, begins, side="right")]
    return [(int(first), int(end), int(path[first] // 2)) for first, end in zip(begins, last, strict=True)]
