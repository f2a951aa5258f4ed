"""No account is asked what another account of its group has answered or is being asked."""

from __future__ import annotations

import numpy as np

from hitl.active.assignment.eligibility import Eligibility
from hitl.active.pending.outstanding import next_plan
from hitl.active.policy import ExpectedGain
from hitl.crew import Budget, Crew
from hitl.evidence import Evidence
from hitl.models.analysis.copied_accounts import copied_accounts
from hitl.models.combine import fit
from hitl.models.vb_ibcc import VBIBCC
from hitl.plan import Ask, Plan
from tests.bench.honesty.copies import Kind, with_copies

PAIRS = 3


def crowd() -> Evidence:
    rng = np.random.default_rng(0)
    evidence = with_copies(Kind(4, (0.5, 0.85), people=12, items=500).draw(rng), rng, PAIRS, 150)
    assert len(copied_accounts(evidence.annotations).pairs) == PAIRS
    return Evidence(evidence.annotations)


def answered(evidence: Evidence) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """(N, K) True where somebody, or a copy or the original of them, has answered."""
    annotations = evidence.annotations
    table = np.zeros((annotations.n_items, annotations.n_annotators), bool)
    table[annotations.item, annotations.annotator] = True
    own = table.copy()
    for pair in copied_accounts(annotations).pairs:
        table[:, pair.copy] |= own[:, pair.original]
        table[:, pair.original] |= own[:, pair.copy]
    return table


def test_what_an_account_has_answered_is_closed_to_its_copy() -> None:
    evidence = crowd()
    annotations, expected = evidence.annotations, ~answered(evidence)
    everyone = Crew(tuple(annotations.annotators))
    free = Eligibility.of(everyone, [annotations]).mask_rows(np.arange(annotations.n_items))
    np.testing.assert_array_equal(free, expected)
    copies = [pair.copy for pair in copied_accounts(annotations).pairs]
    only_copies = Crew(tuple(annotations.annotators[k] for k in copies))  # the originals are not in the crew
    free = Eligibility.of(only_copies, [annotations]).mask_rows(np.arange(annotations.n_items))
    np.testing.assert_array_equal(free, expected[:, copies])


def test_a_plan_asks_no_group_twice() -> None:
    evidence = crowd()
    annotations, done = evidence.annotations, answered(evidence)
    questions, copies = [(evidence, fit(VBIBCC(), evidence))], {p.copy for p in copied_accounts(annotations).pairs}
    crew = Crew(tuple(annotations.annotators[k] for k in copies))
    plan = ExpectedGain(audit_share=0.2).plan(questions, crew, Budget(open_questions=400, target_confidence=1.0))
    pairs = [(annotations.items.index(a.item), annotations.annotators.index(str(a.annotator))) for a in plan.asks]
    assert len(pairs) > 100
    assert not done[tuple(np.transpose(pairs))].any()
    assert len({item for item, _ in pairs}) == len(pairs)


def test_a_question_is_withdrawn_once_the_other_account_has_answered() -> None:
    evidence = crowd()
    annotations, pair = evidence.annotations, copied_accounts(evidence.annotations).pairs[0]
    own, others = (annotations.item[annotations.annotator == k] for k in (pair.copy, pair.original))
    name = annotations.annotators[pair.copy]
    both = np.setdiff1d(others, own)[0], np.setdiff1d(np.arange(annotations.n_items), np.union1d(own, others))[0]
    asks = tuple(Ask(annotations.items[item], name, gain=0.0, right=0.0, why="") for item in both)
    questions, budget = [(evidence, fit(VBIBCC(), evidence))], Budget(open_questions=2, target_confidence=1.0)
    plan = next_plan(ExpectedGain(), questions, Crew((name,)), budget, Plan(asks))
    assert annotations.items[both[0]] not in {ask.item for ask in plan.asks}
    assert annotations.items[both[1]] in {ask.item for ask in plan.asks}
