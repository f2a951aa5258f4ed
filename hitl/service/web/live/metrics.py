"""What live updates do, for Prometheus: register `LiveFigures(live)` with the registry of the application."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from hitl.service.web.live.live import Live

COUNTERS = {
    "pulls": "Looks at the platform that succeeded",
    "failures": "Looks at the platform that failed",
    "labels": "Items whose belief was brought up to date label by label",
    "loads": "Times that everything was read",
}
GAUGES = {
    "seconds": ("pull_seconds", "How long the last look at the platform took"),
    "pulled_at": ("pulled_timestamp_seconds", "When the last look at the platform that succeeded ended"),
    "load_seconds": ("load_seconds", "How long it took to read everything, the last time"),
}


class LiveFigures(Collector):
    """The figures of all projects, as they are when they are asked for.

    Of several processes each has its own, under its number as `worker`: only the one that leads pulls.
    """

    def __init__(self, live: Live, worker: int | None = None) -> None:
        self._live = live
        self._labels, self._values = (["project"], []) if worker is None else (["worker", "project"], [str(worker)])

    def collect(self) -> Iterator[Metric]:
        """One family a figure; the differences are those of the last cycle that came."""
        live = self._live
        for field, text in COUNTERS.items():
            counter = CounterMetricFamily(f"hitl_live_{field}", text, labels=self._labels)
            for project in live.projects:
                counter.add_metric([*self._values, project], getattr(live.figures(project), field))
            yield counter
        for field, (name, text) in GAUGES.items():
            gauge = GaugeMetricFamily(f"hitl_live_{name}", text, labels=self._labels)
            for project in live.projects:
                gauge.add_metric([*self._values, project], getattr(live.figures(project), field))
            yield gauge
        for which in ("largest", "mean"):
            text = f"The {which} absolute difference of a live probability from that of the last cycle"
            gauge = GaugeMetricFamily(f"hitl_live_difference_{which}", text, labels=[*self._labels, "question"])
            for project in live.projects:
                for question, found in live.differences(project).items():
                    gauge.add_metric([*self._values, project, question], getattr(found, which))
            yield gauge
        listeners = GaugeMetricFamily("hitl_live_listeners", "Browsers that listen to events", labels=self._labels[:-1])
        listeners.add_metric(self._values, live.broadcast.clients)
        yield listeners
