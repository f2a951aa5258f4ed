"""All benchmarks, one after the other; each writes its figures to docs/benchmarks/.

python -m tests.bench
"""

from __future__ import annotations

from tests.bench import bench_demo, bench_label_studio_pull, bench_pl, bench_replay_cifar10h, bench_satellite

for bench in (bench_pl, bench_replay_cifar10h, bench_demo, bench_label_studio_pull, bench_satellite):
    print(f"\n== {bench.__name__}", flush=True)
    bench.main(["--save"])
