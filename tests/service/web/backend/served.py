"""A project that is served as a model backend, and the server that serves it, on loopback."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from hitl.connectors.label_studio import LabelStudioSettings
from hitl.connectors.label_studio.config import parse
from hitl.platform import AnnotationRow, AnnotatorRow, ItemRow, Page, PredictionRow
from hitl.service.web.backend import router
from hitl.service.web.projects import Watched
from hitl.service.web.snapshot import Snapshot, snapshot_of
from hitl.settings import ServeSettings, Settings
from hitl.store import Store

USER, PASSWORD = "hitl", "a-token-of-hitl"
NOW = "2026-11-23T20:00:00Z"
CONFIG = """<View><Text name="text" value="$text"/>
<Choices name="mood" toName="text"><Choice value="good"/><Choice value="bad"/><Choice value="mixed"/></Choices>
<Choices name="topics" toName="text" choice="multiple"><Choice value="art"/><Choice value="law"/></Choices></View>"""
assert parse(CONFIG).names == {"mood", "topics"}


@dataclass
class One:
    """What a `Watched` is to the routes."""

    settings: Settings
    snapshot: Snapshot | None


def settings_of(suggest: str, project: int = 1, url: str = "http://localhost:1") -> Settings:
    serve = ServeSettings.model_validate({"suggest": suggest, "blind_share": 0})
    return Settings(name="p", source=LabelStudioSettings(url=url, project=project), serve=serve)


def stored(folder: Path, page: Page, config: str = CONFIG, suggest: str = "model") -> Snapshot:
    """What is served of a project that has these rows."""
    settings = settings_of(suggest)
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        with store.lease("p") as lease:
            store.save_page(lease, page)
            store.note_questions(lease, parse(config).questions)
        return snapshot_of(settings, store)


def rows(
    items: int,
    said: Mapping[tuple[int, str], Mapping[str, str]],
    predicted: Mapping[int, Mapping[str, Mapping[str, float]]] = {},
    gold: Mapping[int, Mapping[str, str]] = {},
) -> Page:
    """Items 1, 2, ...; (item, annotator) -> question -> label; item -> question -> class -> probability."""
    annotations = [
        AnnotationRow(f"{item}{who}", str(item), question, who, label, "answer", NOW, NOW)
        for (item, who), labels in said.items()
        for question, label in labels.items()
    ] + [
        AnnotationRow(f"{item}gold", str(item), question, "lead", label, "gold", NOW, NOW)
        for item, labels in gold.items()
        for question, label in labels.items()
    ]
    predictions = [
        PredictionRow(str(item), question, "resnet", p)
        for item, shares in predicted.items()
        for question, p in shares.items()
    ]
    people = sorted({who for _, who in said} | ({"lead"} if gold else set()))
    return Page(
        cursor={},
        items=tuple(ItemRow(str(n), {"text": f"text {n}"}, NOW) for n in range(1, items + 1)),
        annotations=tuple(annotations),
        predictions=tuple(predictions),
        annotators=tuple(AnnotatorRow(who, who) for who in people),
        live=frozenset(str(n) for n in range(1, items + 1)),
    )


def allowed(user: str, password: str, project: str) -> bool:
    return (user, password) == (USER, PASSWORD)


def application(projects: Mapping[str, Any], may: Callable[[str, str, str], bool] = allowed) -> FastAPI:
    app = FastAPI()
    app.include_router(router(cast("Mapping[str, Watched]", projects), may))
    return app


@contextmanager
def serving(app: ASGIApp) -> Iterator[str]:
    """Its address, while it is served."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    for _ in range(1000):
        if server.started:
            break
        time.sleep(0.01)
    assert server.started
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
