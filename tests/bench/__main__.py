"""All benchmarks, one after the other; each writes its figures to docs/benchmarks/.

python -m tests.bench

Those that other packages are compared in have an environment of their own: make bench-speed,
make bench-crowdlab, make results.
"""

from __future__ import annotations

from importlib import import_module

NAMES = (
    *("pl", "calibration", "replay_cifar10h", "replay_crew", "replay_people", "demo", "diverse", "gpc", "gpc_active"),
    *(
        "accuracy",
        "honesty",
        "learn",
        "masks",
        "networks",
        "satellite",
        "schedule_crashes",
        "sequences",
        "spans",
        "assign",
    ),
    *("variational_gp",),
)

OTHERS = (
    *(
        "honesty.stops",
        "honesty.policy",
        "honesty.copies",
        "honesty.random_crowds",
        "honesty.model_and_people",
        "honesty.suggestions",
        "honesty.soft_labels",
        "scale.many_items",
        "service.label_studio_pull",
        "service.trace_pull",
    ),
    "guarantees.acceptance",
    "papers",
    "preferences.rankings",
)

for name in (*(f"bench_{name}" for name in NAMES), *OTHERS):
    print(f"\n== {name}", flush=True)
    import_module(f"tests.bench.{name}").main(["--save"])
import_module("tests.bench.bench_learn").main(["--noise", "--save"])
