"""What is said of single people: the information of a label, the others' beliefs, spammers, change over time."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from hitl.annotations import Annotations
from hitl.consensus import AnnotatorReport
from hitl.errors import BadInput
from hitl.evidence import Evidence
from hitl.models import PLEM, DawidSkene
from hitl.models.analysis import annotator_profile as profile
from hitl.models.analysis import drift, spammers
from hitl.models.analysis.annotator_profile import AnnotatorProfiler
from hitl.models.analysis.information import information
from hitl.models.annotators.leave_one_out import FLOOR, Others
from tests.oracles import crowd, pool

Array = np.ndarray
CAREFUL = DawidSkene(accuracy=0.75, share_smoothing=20, least_labels=2)


def matrices(rng: np.random.Generator, k: int, j: int, options: int) -> Array:
    return rng.dirichlet(np.ones(options), size=(k, j))


# -- information -----------------------------------------------------------------------------------------------


def test_information_is_that_of_the_joint_table() -> None:
    rng = np.random.default_rng(0)
    pi_kjl, share_j = matrices(rng, 5, 3, 4), rng.dirichlet(np.ones(3))
    for k, found in enumerate(information(pi_kjl, share_j)):
        total = 0.0
        for j, option in product(range(3), range(4)):
            joint = share_j[j] * pi_kjl[k, j, option]
            total += joint * np.log2(joint / share_j[j] / (share_j @ pi_kjl[k, :, option]))
        assert found == pytest.approx(total)


# -- the others ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("models", [0, 2])
def test_the_others_beliefs_are_those_of_a_table_without_the_label(models: int) -> None:
    rng = np.random.default_rng(1)
    evidence, _ = crowd(rng, 12, 5, 3, 4, unlabeled=1, pool=6, known=0.2, models=models, abstaining=0.3)
    consensus = (PLEM() if models else DawidSkene(smoothing=0.1)).fit(evidence)
    annotations = evidence.annotations
    rows = np.arange(len(annotations))
    found = Others(evidence, consensus).beliefs(rows)
    correlation = consensus.parameters.get("model correlation")
    log_prior = pool(evidence, consensus.temperatures, consensus.class_shares, correlation=correlation)
    log_pi = np.log(np.maximum(consensus.annotators.confusion, FLOOR))
    for row in rows:
        n = annotations.item[row]
        logits = log_prior[n].copy()
        for other in np.flatnonzero(annotations.item == n):
            if other != row:
                logits += log_pi[annotations.annotator[other], :, annotations.label[other]]
        expected = np.exp(logits - logsumexp(logits))
        if evidence.truth[n] >= 0:
            expected = np.eye(3)[evidence.truth[n]]
        assert found[row] == pytest.approx(expected, abs=1e-10)


# -- spammers --------------------------------------------------------------------------------------------------


def log_dirichlet_multinomial(counts: Array, a: Array) -> float:
    """Log probability of a sequence of answers, in order, under one Dirichlet row."""
    total = gammaln(a.sum()) - gammaln(a.sum() + counts.sum())
    return float(total + np.sum(gammaln(a + counts) - gammaln(a)))


def evidence_by_enumeration(said: Array, q_mj: Array, a_jl: Array) -> float:
    """Log of the sum over all classes of the items, the matrix integrated out."""
    terms = []
    for z in product(range(len(a_jl)), repeat=len(said)):
        counts = np.zeros_like(a_jl)
        np.add.at(counts, (list(z), said), 1)
        log_p = sum(np.log(q_mj[m, j]) for m, j in enumerate(z))
        terms.append(log_p + sum(log_dirichlet_multinomial(counts[j], a_jl[j]) for j in range(len(a_jl))))
    return float(logsumexp(terms))


def one_annotator(rng: np.random.Generator, m: int, j: int, options: int, sharp: float) -> tuple[Array, Array, object]:
    """Answers, the others' beliefs, and the crowd of this one person."""
    said, q_mj = rng.integers(options, size=m), rng.dirichlet(np.full(j, 1 / sharp), size=m) + 1e-12
    q_mj /= q_mj.sum(axis=1, keepdims=True)
    names = tuple(f"o{option}" for option in range(options))
    item, nobody = np.arange(m, dtype=np.int32), np.zeros(m, np.int32)
    annotations = Annotations(item, nobody, said.astype(np.int32), tuple(range(m)), ("k",), names[:j], names)
    return said, q_mj, spammers.Crowd(annotations, np.arange(m), q_mj)


@pytest.mark.parametrize(("j", "options"), [(2, 2), (2, 3), (3, 3)])
def test_the_evidence_of_a_spammer_is_exact_and_that_of_a_matrix_a_close_bound(j: int, options: int) -> None:
    rng = np.random.default_rng(j + options)
    for sharp in (1.0, 10.0, 1000.0):
        said, q_mj, who = one_annotator(rng, 7, j, options, sharp)
        counts = np.bincount(said, minlength=options)
        spam = log_dirichlet_multinomial(counts, np.full(options, spammers.ONE_ROW))
        assert who.evidence_of_one_row()[0] == pytest.approx(spam)
        a_jl = rng.gamma(2.0, 1.0, (j, options)) + 2 * np.eye(j, options)
        exact = evidence_by_enumeration(said, q_mj, a_jl)
        bounds = [who.evidence_of_matrices(a_jl, who.counts(q_mj), sweeps)[0][0] for sweeps in (1, 2, 4, 30)]
        assert (np.diff(bounds) >= -1e-9).all()
        assert bounds[-1] <= exact + 1e-9
        assert bounds[-1] == pytest.approx(exact, abs=0.6 if sharp < 1000 else 0.02)


def ways(annotations: Annotations) -> spammers.WaysToAnswer:
    evidence = Evidence(annotations)
    consensus = CAREFUL.fit(evidence)
    return spammers.compare_ways(annotations, Others(evidence, consensus), consensus.class_shares)


def test_kinds_of_bad_answers_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    matrix = np.array([[0.85, 0.1, 0.05], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    kinds = {"good": matrix, "always": np.tile([0.01, 0.98, 0.01], (3, 1)), "random": np.full((3, 3), 1 / 3)}
    kinds |= {"wrong": matrix[:, [1, 2, 0]], "weak": 0.6 * matrix + 0.4 / 3}
    names = ["good"] * 12 + [name for name in kinds if name != "good"] * 2
    pi_kjl = np.array([kinds[name] for name in names])
    truth = rng.integers(3, size=400)
    who = np.concatenate([rng.choice(len(names), 6, replace=False) for _ in truth])
    item = np.repeat(np.arange(400), 6)
    said = np.minimum((pi_kjl[who, truth[item]].cumsum(axis=1) < rng.random((2400, 1))).sum(axis=1), 2)
    annotations = Annotations(
        item.astype(np.int32), who.astype(np.int32), said.astype(np.int32), tuple(range(400)),
        tuple(f"{name} {k}" for k, name in enumerate(names)), tuple("abc"), tuple("abc"),
    )  # fmt: skip
    evidence = Evidence(annotations)
    found = AnnotatorProfiler().fit(evidence, CAREFUL.fit(evidence))
    expected = {"always": ["always 'b'"], "random": ["random answers"], "wrong": ["systematically wrong"]}
    for k, name in enumerate(names):
        behind = ["right less often than most others"] if name == "weak" and found.behind[k] else []
        assert found.flags(k) == expected.get(name, behind), name
    assert found.behind[names.index("weak")]
    weak, random = names.index("weak"), names.index("random")
    assert found.bits[random] < 0.1 < found.bits[weak] < found.bits[0] < found.entropy


def test_who_works_in_vain_is_uninformative_too() -> None:
    """Two answers, 400 labels, all but independent of the class: no exact spammer, but of no use."""
    rng = np.random.default_rng(4)
    truth = rng.integers(2, size=1500)
    accuracy = np.array([0.9, 0.85, 0.8, 0.9, 0.85, 0.52, 0.66])
    matrix = np.where(rng.random((1500, 7)) < accuracy, truth[:, None], 1 - truth[:, None])
    matrix[rng.random((1500, 7)) < 0.3] = -1
    found = ways(Annotations.from_matrix(matrix))
    assert found.uninformative[5] > 0.95
    assert (found.uninformative[[0, 1, 2, 3, 4, 6]] < 0.05).all()


def test_nobody_is_judged_by_nothing() -> None:
    """No labels, or labels nobody else can confirm: the prior shares, nearly."""
    item = np.arange(40, dtype=np.int32)
    annotations = Annotations(
        item, (item % 2).astype(np.int32), (item // 2 % 2).astype(np.int32), tuple(range(40)), ("a", "b", "idle"),
        (0, 1), (0, 1),
    )  # fmt: skip
    found = ways(annotations)
    assert found.probability[2] == pytest.approx(found.shares, abs=0.05)
    assert (found.uninformative < 0.8).all()
    empty = Annotations(item[:0], item[:0], item[:0], (0, 1), (), (0, 1), (0, 1))
    assert len(ways(empty).probability) == 0


# -- change over time ------------------------------------------------------------------------------------------


def test_scores_are_the_derivative_and_have_the_moments_they_should() -> None:
    rng = np.random.default_rng(5)
    pi_jl, q_tj = rng.dirichlet(np.ones(4), size=3), rng.dirichlet(np.ones(3), size=6)
    classes = np.arange(3)

    def log_p(q_j: Array, option: int, shift: float) -> float:
        moved = pi_jl.copy()
        for j in classes:
            moved[j] *= 1 - shift / (1 - pi_jl[j, j])
            moved[j, j] = pi_jl[j, j] + shift
        assert np.allclose(moved.sum(axis=1), 1)
        return float(np.log(q_j @ moved[:, option]))

    for q_j in q_tj:
        p_l = q_j @ pi_jl
        every = np.tile(q_j, (4, 1))
        score, spread, accuracy = drift.scores(np.arange(4), every, pi_jl)
        for option in range(4):
            slope = (log_p(q_j, option, 1e-6) - log_p(q_j, option, -1e-6)) / 2e-6
            assert score[option] == pytest.approx(slope, abs=1e-5)
        assert p_l @ score == pytest.approx(0, abs=1e-7)
        assert spread == pytest.approx(np.full(4, p_l @ score**2), rel=1e-6)
        assert accuracy == pytest.approx(q_j @ np.diag(pi_jl))


def with_times(rng: np.random.Generator, worse: float, n: int = 900) -> Annotations:
    """Ten people of 85 %; the first two fall to `worse` in the second half of the time."""
    truth, time = rng.integers(3, size=n), rng.random((n, 10))
    accuracy = np.where((np.arange(10) < 2) & (time > 0.5), worse, 0.85)
    wrong = (truth[:, None] + rng.integers(1, 3, size=(n, 10))) % 3
    matrix = np.where(rng.random((n, 10)) < accuracy, truth[:, None], wrong)
    matrix[rng.random((n, 10)) < 0.6] = -1
    annotations = Annotations.from_matrix(matrix)
    return replace(annotations, time=time[annotations.item, annotations.annotator])


def changes(annotations: Annotations) -> list[drift.Change | None]:
    evidence = Evidence(annotations)
    consensus = CAREFUL.fit(evidence)
    others = Others(evidence, consensus)
    judged = spammers.compare_ways(annotations, others, consensus.class_shares)
    return drift.find_changes(annotations, others, judged.confusion)


def test_a_change_is_found_with_its_size_and_time_and_few_are_invented() -> None:
    alarms, levels = [], []
    for seed in range(6):
        found = changes(with_times(np.random.default_rng(seed), 0.6))
        alarms.append(drift.alarms(found))
        for change in found[:2]:
            assert change is not None
            assert change.effect == pytest.approx(-0.25, abs=0.16)
            assert change.when == pytest.approx(0.5, abs=0.15)
            levels.append([part.mean() for part in np.split(change.windows.accuracy, 2)])
    assert np.mean(levels, axis=0) == pytest.approx([0.85, 0.6], abs=0.02)
    assert np.mean([alarm[:2] for alarm in alarms]) >= 0.75  # at this look; what is missed now, a later one sees
    assert np.mean([alarm[2:] for alarm in alarms]) < 0.05


def test_without_times_or_labels_nothing_is_said_of_change() -> None:
    annotations = with_times(np.random.default_rng(0), 0.85)
    assert changes(replace(annotations, time=None)) == [None] * 10
    assert changes(replace(annotations, time=np.ones(len(annotations)))) == [None] * 10
    some = np.where(annotations.annotator == 3, np.nan, annotations.time)
    assert [k for k, c in enumerate(changes(replace(annotations, time=some))) if c is None] == [3]
    assert not drift.alarms([None] * 10).any()


def test_labels_of_one_moment_are_not_split() -> None:
    annotations = with_times(np.random.default_rng(1), 0.5)
    days = replace(annotations, time=np.floor(annotations.time * 4))
    for change in changes(days):
        assert change is not None
        assert change.when in (1.0, 2.0, 3.0)
    assert changes(days)[0].when == 2.0


def test_few_constant_annotators_are_ever_flagged_however_often_one_looks() -> None:
    """A project looked at after every batch of 5 labels an annotator, up to 400 labels each."""
    n, constant = 400, []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        accuracy = rng.choice([0.7, 0.85, 0.95])
        right = rng.random(n) < accuracy
        q_tj = np.eye(2)[rng.integers(2, size=n)]
        said = np.where(right, q_tj.argmax(axis=1), 1 - q_tj.argmax(axis=1)).astype(np.int32)
        looks = []
        for seen in range(20, n + 1, 5):
            share = np.clip(right[:seen].mean(), 0.01, 0.99)
            pi_jl = np.array([[share, 1 - share], [1 - share, share]])
            looks.append(drift.find_change(np.arange(float(seen)), said[:seen], q_tj[:seen], pi_jl))
        constant.append((any(drift.alarms([look])[0] for look in looks), min(look.p_value for look in looks) < 0.05))
    ever, at_one_look = np.mean(constant, axis=0)
    assert ever <= 0.05
    assert at_one_look > 0.2  # p at one look, which alarms went by before, is no guard against many


# -- together --------------------------------------------------------------------------------------------------


def people(concentration: Array, labels: list[int], share: Array) -> AnnotatorReport:
    mean = concentration / concentration.sum(axis=2, keepdims=True)
    names = tuple(f"k{k}" for k in range(len(labels)))
    options = ("cat", "dog", "cow", "unsure")[: concentration.shape[2]]
    return AnnotatorReport(
        names, options[: concentration.shape[1]], options, concentration, mean, np.array(labels), share
    )


def test_typical_confusions_have_the_interval_of_their_margin_and_need_support() -> None:
    from scipy.stats import beta

    a = np.array(
        [
            [[80.0, 19, 1, 0.1], [4, 40, 1, 5]],
            [[0.8, 0.19, 0.01, 0.01], [0.04, 0.4, 0.01, 0.05]],
            [[98.0, 1, 1, 0.1], [1, 48, 0.5, 0.5]],
            [[80.0, 20, 0.1, 0.1], [20, 80, 0.1, 0.1]],
        ]
    )
    found = profile.typical_confusions(people(a, [150, 1, 150, 4], np.array([2 / 3, 1 / 3])))
    assert [(c.true, c.said) for c in found[0]] == [("cat", "dog"), ("dog", "unsure")]
    first = found[0][0]
    assert first.often == pytest.approx(19 / 100.1)
    assert (first.low, first.high) == pytest.approx(beta.ppf([0.025, 0.975], 19, 81.1))
    assert str(first) == "says 'dog' for 19 % of 'cat' (12 to 27 %)"
    assert found[1] == found[2] == found[3] == ()  # too few labels; too rare; nothing but the prior of the crowd
    assert profile.typical_confusions(people(a[:0], [], np.array([0.5, 0.5]))) == ()


def test_a_consensus_over_something_else_is_refused() -> None:
    (one, _), (other, _) = (crowd(np.random.default_rng(seed), 20 + seed, 4) for seed in (0, 1))
    with pytest.raises(BadInput, match="other items"):
        AnnotatorProfiler().fit(one, CAREFUL.fit(other))
