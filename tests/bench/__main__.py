"""All benchmarks, one after the other; each writes its figures to docs/benchmarks/.

python -m tests.bench

Only the speed has an environment of its own, for what it is compared with: make bench-speed.
"""

from __future__ import annotations

from tests.bench import (
    bench_assign,
    bench_calibration,
    bench_demo,
    bench_diverse,
    bench_gpc,
    bench_gpc_active,
    bench_honesty,
    bench_label_studio_pull,
    bench_learn,
    bench_many_items,
    bench_masks,
    bench_pl,
    bench_replay_cifar10h,
    bench_replay_crew,
    bench_replay_people,
    bench_satellite,
    bench_schedule_crashes,
    bench_sequences,
)
from tests.bench.honesty import stops
from tests.bench.papers import __main__ as bench_papers

for bench in (
    bench_pl,
    bench_calibration,
    bench_replay_cifar10h,
    bench_replay_crew,
    bench_replay_people,
    bench_demo,
    bench_diverse,
    bench_gpc,
    bench_gpc_active,
    bench_honesty,
    stops,
    bench_label_studio_pull,
    bench_learn,
    bench_many_items,
    bench_masks,
    bench_satellite,
    bench_schedule_crashes,
    bench_sequences,
    bench_assign,
    bench_papers,
):
    print(f"\n== {bench.__name__}", flush=True)
    bench.main(["--save"])
bench_learn.main(["--noise", "--save"])
