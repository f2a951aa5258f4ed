"""Read traces, questions and review queues of an MLflow server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import ClassVar

from hitl.connectors.rest import Json, Rest

PAGE = 500
"""Traces of a request; MLflow refuses more."""
API = "/api/3.0/mlflow"


class Client(Rest):
    """Client of one MLflow server."""

    name = "MLflow"
    advice: ClassVar = {
        401: "Set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN",
        403: "hitl's account needs the permission EDIT on the experiment",
        404: "Check source.url and source.experiment",
    }

    def pages(self, path: str, field: str, **parameters: object) -> Iterator[Json]:
        """Yield the rows in `field` of every page of a list."""
        token = ""
        while True:
            page = self.get(f"{API}/{path}", **parameters, **({"page_token": token} if token else {}))
            yield from page.get(field, [])
            token = page.get("next_page_token", "")
            if not token:
                return

    def traces(self, experiment: str, token: str | None) -> tuple[list[Json], str | None]:
        """Return a page of traces with their assessments, oldest first, and the token of the next page.

        MLflow's own token counts traces, so that one deleted meanwhile would hide another. Ours is the time from which
        on to read, which repeats some traces; MLflow's follows it only within one millisecond.
        """
        where = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment}}
        since, _, place = (token or "0").partition(" ")
        given = {"filter": f"timestamp_ms >= {since}"} | ({"page_token": place} if place else {})
        answer = self.ask(
            f"{API}/traces/search", locations=[where], max_results=PAGE, order_by=["timestamp_ms ASC"], **given
        )
        traces, more = answer.get("traces", []), answer.get("next_page_token")
        if not more:
            return traces, None
        last = int(datetime.fromisoformat(traces[-1]["request_time"]).timestamp() * 1000)
        return traces, f"{last}" if last > int(since) else f"{since} {more}"

    def infos(self, traces: Sequence[str]) -> Iterator[Json]:
        """Yield these traces with their assessments; those that do not exist are left out."""
        for start in range(0, len(traces), PAGE):
            ids = traces[start : start + PAGE]
            yield from self.ask(f"{API}/traces/batchGetInfos", trace_ids=list(ids)).get("trace_infos", [])
