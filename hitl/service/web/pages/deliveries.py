"""Show the events sent for a project, and whether they were delivered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query, Request
from fastapi.responses import Response
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hitl.service.web.callers import OneProject, Viewer
from hitl.service.web.errors import responses
from hitl.service.web.formats import FORMS, Page, answer, pages
from hitl.store.events import Counted

if TYPE_CHECKING:
    from hitl.service.web.projects import Projects, Watched

router = pages("deliveries")

COLUMNS = ("event", "kind", "at", "address", "state", "attempts", "tried", "next", "said")


@router.get(
    "/projects/{project}/deliveries",
    summary="What chat tools and pipelines were told",
    responses=FORMS | responses(401, 404, 422),
)
def deliveries(
    project: str,
    request: Request,
    caller: Viewer,
    one: OneProject,
    size: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """The last deliveries, newest event first, and how many each address has had."""
    rows = [each.as_json() for each in one.store.deliveries(project, size)]
    facts = {"addresses": addresses_of(one)}
    return answer(request, Page("deliveries.html.j2", "Events", rows, COLUMNS, facts), caller, project)


def addresses_of(one: Watched) -> list[dict[str, Any]]:
    """Return the addresses of a project without secret parts, and their counts."""
    counts = one.store.count_deliveries(one.name)
    return [
        {"address": to.name, "at": to.shown, "lacks": to.lacks, **asdict(counts.get(to.name, Counted()))}
        for to in one.settings.events
    ]


class EventFigures(Collector):
    """Numbers of delivered, failed and waiting events, for Prometheus."""

    def __init__(self, projects: Projects) -> None:
        self._projects = projects

    def collect(self) -> Iterable[Metric]:
        """Yield the counts, read from the stores."""
        labels = ["project", "address"]
        delivered = CounterMetricFamily("hitl_events_delivered", "Events that have arrived", labels=labels)
        failed = CounterMetricFamily("hitl_events_failed", "Events that were given up", labels=labels)
        waiting = GaugeMetricFamily("hitl_events_waiting", "Events that are still to be sent", labels=labels)
        for name, one in self._projects.items():
            for to in addresses_of(one):
                for family, figure in ((delivered, "delivered"), (failed, "failed"), (waiting, "waiting")):
                    family.add_metric([name, to["address"]], to[figure])
        return delivered, failed, waiting
