"""VariationalGPCMA: accuracy on real crowds with features, time and memory on a large one, and beside gpytorch's own.

    python -m tests.bench.bench_variational_gp [--device auto] [--items 100000] [--inducing 200] [--parts real ...]

gpytorch  a natural-gradient step with and without hyper-parameter gradients, by gpytorch's VariationalStrategy,
          VariationalELBO and NGD, and by the closed form with gpytorch's kernel that is used here; on the CPU
real      labelme (1000 scenes, 59 annotators, VGG features; test: 1188 scenes nobody labeled) and music_genre (700
          songs, 44 annotators, audio features, one length scale each; test: 300 songs), beside two steps: the labels of
          the default method, then a logistic regression on the same features, standardised. The settings were chosen on
          the validation part of labelme and on music_genre, so the figures of music_genre are optimistic.
warm      10 new labels beside labelme's others: a warm start and a fit
large     `--items` items x 64 features x 10 classes x 5 labels by 300 annotators, simulated: three clusters a class

Times are of the process on the CPU (`cpu`) beside those of the clock: on a busy machine the former say more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hitl.annotations import Annotations, Floats, Ints
from hitl.evidence import Evidence
from hitl.models import DefaultCombiner, VariationalGPCMA
from tests import reference_data
from tests.bench import results
from tests.bench.bench_gpc import unlabeled

Part = tuple[list[str], dict[str, Any]]


def tested(name: str) -> tuple[Floats, Ints]:
    """Features and class codes of a set's test part."""
    classes = [str(one) for one in reference_data.crowd(name).annotations.classes]
    if name == "labelme":
        with np.load(reference_data.folder(name) / "features_valid_test.npz") as given:
            x_nd, labels = given["X_test"].astype(float), given["y_test"]
    else:
        x_nd, labels = reference_data.features(name, "_test")
    return x_nd, np.array([classes.index(str(label)) for label in labels], np.int32)


def untold(name: str) -> Evidence:
    """Annotations and features of a set, without its truth."""
    return replace(reference_data.with_features(name), truth=None)


def simulated(n: int, seed: int = 0) -> tuple[Evidence, Ints]:
    """Three clusters of 64 features a class, 10 classes, 300 annotators of mixed skill, 5 labels an item."""
    rng, d, j, k, labels = np.random.default_rng(seed), 64, 10, 300, 5
    cluster = rng.integers(3 * j, size=n)
    truth = (cluster % j).astype(np.int32)
    features = rng.normal(size=(3 * j, d))[cluster] + 1.4 * rng.normal(size=(n, d))
    accuracy = rng.beta(6, 3, size=k)
    pi_kjl = rng.dirichlet(np.ones(j), size=(k, j)) * (1 - accuracy)[:, None, None]
    pi_kjl[:, np.arange(j), np.arange(j)] += accuracy[:, None]
    annotator = ((rng.integers(k, size=(n, 1)) + np.arange(labels) * rng.integers(1, 60, size=(n, 1))) % k).ravel()
    item = np.repeat(np.arange(n, dtype=np.int32), labels)
    above = rng.random(item.size)[:, None] > pi_kjl.cumsum(axis=2)[annotator, truth[item]]
    label = above.sum(axis=1).clip(max=j - 1).astype(np.int32)
    names = tuple(f"class {code}" for code in range(j))
    people = annotator.astype(np.int32)
    annotations = Annotations(item, people, label, tuple(range(n)), tuple(range(k)), names, names)
    return Evidence(annotations, features=features), truth


def machinery(options: Any) -> Part:
    import torch

    from hitl.models.priors.covariance import CovarianceModule
    from hitl.models.priors.variational_gp import Inputs, VariationalGP
    from tests.models.priors.gpytorch_reference import CrowdGP, natural_step

    rng, n = np.random.default_rng(0), 2000
    inputs = Inputs.standardised(rng.normal(size=(n, 64)))
    message_nj = rng.normal(size=(n, 10))
    prior = VariationalGP.unlearned(inputs, CovarianceModule(64, False), 10, 200, "cpu", rng)
    model, (x_nd, _) = CrowdGP(prior), inputs.tensors(slice(None), prior.shift_jm)
    given, every = torch.from_numpy(message_nj), np.ones(n, dtype=bool)
    figures: dict[str, dict[str, float]] = {}
    for learning in (True, False):
        model.covar_module.requires_grad_(learning)
        paced = prior.paced(False, float(learning))
        ours, theirs = [], []
        for _ in range(5):
            with results.measured() as step:
                paced.learn(paced.posterior(message_nj.copy(), every).statistics)
            with results.measured() as other:
                natural_step(model, x_nd, given, 0.5)
            ours.append(step["cpu"])
            theirs.append(other["cpu"])
        which = "with hyper-parameters" if learning else "these held"
        figures[which] = {"closed form": min(ours), "gpytorch": min(theirs)}
    title = "2,000 items, 64 features, 10 classes, 200 inducing points; cpu s a step:"
    return [title, *results.table(figures, 2)], figures


def real(options: Any) -> Part:
    from sklearn.linear_model import LogisticRegressionCV

    figures: dict[str, dict[str, float]] = {}
    for name, ard in (("labelme", False), ("music_genre", True)):
        seen, (features, truth) = untold(name), tested(name)
        assert seen.features is not None
        labels = DefaultCombiner().fit(Evidence(seen.annotations)).codes
        center, scale = seen.features.mean(axis=0), seen.features.std(axis=0) + 1e-12
        regression = LogisticRegressionCV(Cs=[0.001, 0.01, 0.1, 1.0], cv=5, max_iter=2000)
        regression.fit((seen.features - center) / scale, labels)
        two_steps = float((regression.predict((features - center) / scale) == truth).mean())
        for annotators in ("dirichlet", "map"):
            method = VariationalGPCMA(ard=ard, annotators=annotators, device=options.device)
            with results.measured() as took:
                found = method.fit(seen)
            applied = method.apply(found, unlabeled(features, seen.annotations.classes))
            figures[f"{name} {annotators}"] = {
                "train": float((found.codes == reference_data.crowd(name).truth).mean()),
                "test": float((applied.codes == truth).mean()),
                "two steps": two_steps,
                "iterations": found.fit.iterations,
                "cpu": took["cpu"],
                "seconds": took["seconds"],
            }
    return results.table(figures, 4), figures


def warm(options: Any) -> Part:
    evidence = untold("labelme")
    a, method = evidence.annotations, VariationalGPCMA(device=options.device)
    late = np.zeros(len(a), dtype=bool)
    late[np.random.default_rng(0).choice(len(a), 10, replace=False)] = True
    before = method.fit(replace(evidence, annotations=a.select(~late)))
    with results.measured() as cold:
        fit = method.fit(evidence)
    with results.measured() as start:
        again = method.fit(evidence, start=before)
    ratio, same = start["cpu"] / cold["cpu"], float((again.codes == fit.codes).mean())
    apart = float(np.abs(again.probabilities - fit.probabilities).mean())
    line = (
        f"labelme, 10 labels more: a fit {cold['cpu']:.1f} cpu s, a warm start {start['cpu']:.2f} ({ratio:.2f} of it); "
        f"{same:.4f} of the labels the same, probabilities {apart:.5f} apart on average"
    )
    return [line], {"ratio": ratio, "same": same, "apart": apart}


def large(options: Any) -> Part:
    evidence, truth = simulated(options.items)
    with results.measured() as took:
        found = VariationalGPCMA(inducing=options.inducing, device=options.device).fit(evidence)
    right = float((found.codes == truth).mean())
    alone = float((DefaultCombiner().fit(Evidence(evidence.annotations)).codes == truth).mean())
    line = (
        f"{options.items:,} items, {options.inducing} inducing points: {took['cpu']:.0f} cpu s, "
        f"{took['seconds']:.0f} clock s, {took['MB']:.0f} MB over the inputs; {found.fit.iterations} iterations; "
        f"right: {right:.4f} (default, without features: {alone:.4f})"
    )
    return [line], took | {"items": options.items, "right": right}


def main(arguments: Sequence[str] | None = None) -> None:
    parts = {"gpytorch": machinery, "real": real, "warm": warm, "large": large}
    options = results.options(__doc__, arguments, device="auto", items=100_000, inducing=200, parts=list(parts))
    page = results.Page()
    figures = page.parts(parts, options.parts, options)
    bars: list[results.Bar] = []
    if "real" in figures:
        bars.append(results.at_least("labelme, test accuracy", figures["real"]["labelme dirichlet"]["test"], 0.84))
    if "warm" in figures:
        bars.append(results.at_most("a warm start, in terms of a fit,", figures["warm"]["ratio"], 0.2, ".2f"))
    if "large" in figures:
        bars.append(results.at_most("the large set: seconds of the clock", figures["large"]["seconds"], 300, ".0f"))
        bars.append(results.at_most("the large set: MB over the inputs", figures["large"]["MB"], 3000, ".0f"))
    page.held(*bars)
    if options.save:
        page.save("variational_gp", figures)


if __name__ == "__main__":
    main()
