"""The five routes of a model backend, asked as Label Studio 1.23.2 was recorded to ask them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from hitl.connectors.label_studio.config import parse
from hitl.connectors.tables import TablesSettings
from hitl.parts import boxes_as_label, spans_as_label
from hitl.service.web import backend as routes
from hitl.settings import Settings
from tests.service.web.backend.served import (
    CONFIG,
    PASSWORD,
    USER,
    One,
    application,
    rows,
    serving,
    settings_of,
    stored,
)

SURE = {"good": 0.98, "bad": 0.01, "mixed": 0.01}
DOUBT = {"good": 0.2, "bad": 0.5, "mixed": 0.3}
ART = {"no": 0.1, "yes": 0.9}
NO_LAW = {"no": 0.8, "yes": 0.2}
ALL = {"mood": SURE, "topics=art": ART, "topics=law": NO_LAW}

PAGE = rows(
    8,
    {
        **{(n, who): {"mood": "bad", "topics=art": "no", "topics=law": "yes"} for n in (1, 2) for who in "abc"},
        **{(3, who): {"mood": "mixed"} for who in "ab"},
    },
    {1: ALL, 2: {"mood": DOUBT}, 4: ALL, 6: {"mood": DOUBT}},
    {5: {"mood": "good", "topics=art": "yes", "topics=law": "no"}},
)
"""1 to 3 labeled, 1 and 2 predicted otherwise, 4 and 6 predicted alone, 5 known truth, 7 and 8 nothing."""


def recorded(*tasks: int, config: str = CONFIG) -> dict[str, Any]:
    """A request to /predict of a Label Studio 1.23.2, with some of its fields."""
    drafted = {"id": 1, "result": [], "model_version": "hitl-order-mark-fb9f81fccf4c91df", "score": 0.0, "task": 4}
    task = {"meta": {}, "is_labeled": False, "overlap": 1, "annotations": [], "predictions": [drafted]}
    return {
        "tasks": [{"id": number, "data": {"text": f"text {number}"}, **task} for number in tasks],
        "project": "1.1795465322",
        "label_config": config,
        "params": {"login": None, "password": None, "context": None},
    }


SETUP = {
    "project": "1.1795465322",
    "schema": CONFIG,
    "hostname": "http://localhost:32919",
    "access_token": "a-token-of-label-studio",
    "extra_params": None,
}


@pytest.fixture
def one(tmp_path: Path) -> One:
    snapshot = stored(tmp_path, PAGE)
    return One(snapshot.settings, snapshot)


@pytest.fixture
def client(one: One) -> Iterator[httpx.Client]:
    tables = Settings(name="t", source=TablesSettings(path="."))
    with (
        serving(application({"p": one, "t": One(tables, None)})) as url,
        httpx.Client(
            base_url=url, auth=(USER, PASSWORD), timeout=60, headers={"User-Agent": "heartex/1.23.2"}
        ) as asking,
    ):
        yield asking


def choosing(one: One, suggest: str) -> None:
    assert one.snapshot is not None
    one.settings = settings_of(suggest)
    one.snapshot = replace(one.snapshot, settings=one.settings)


def predicted(client: httpx.Client, *tasks: int, config: str = CONFIG) -> list[Any]:
    answer = client.post("/ml/p/predict", json=recorded(*tasks, config=config))
    assert answer.status_code == 200, answer.text
    assert answer.json().keys() == {"results"}
    return list(answer.json()["results"])


def said(entry: Any) -> dict[str, str | None] | None:
    """Question -> label of what is suggested, read as an annotation would be."""
    return None if entry == [] else dict(parse(CONFIG).read(entry["result"]))


def test_health_setup_and_versions_say_one_version(client: httpx.Client) -> None:
    assert client.get("/ml/p/health").json() == {"status": "UP", "model_class": "hitl"}
    answer = client.post("/ml/p/setup", json=SETUP)
    assert answer.status_code == 200
    version = answer.json()["model_version"]
    assert version.startswith("hitl-suggests-model-")
    assert client.get("/ml/p/versions").json() == {"versions": [version]}
    (entry,) = predicted(client, 4)
    assert entry["model_version"] == version


def test_a_prediction_is_written_as_annotations_are(client: httpx.Client) -> None:
    (entry,) = predicted(client, 4)
    assert entry["result"] == [
        {"from_name": "mood", "to_name": "text", "type": "choices", "value": {"choices": ["good"]}},
        {"from_name": "topics", "to_name": "text", "type": "choices", "value": {"choices": ["art"]}},
    ]
    assert 0 < entry["score"] <= 1


def test_by_default_the_model_speaks_and_what_people_say_is_not_shown(client: httpx.Client) -> None:
    """Three people say "bad" of item 1; the model says "good" as before, and nothing of item 3, which it never saw."""
    entries = predicted(client, *range(1, 9))
    moods = [None if (labels := said(entry)) is None else labels["mood"] for entry in entries]
    assert moods == ["good", "bad", None, "good", None, "bad", None, None]


def test_the_consensus_is_shown_where_that_is_asked_for(client: httpx.Client, one: One) -> None:
    choosing(one, "consensus")
    entries = predicted(client, *range(1, 9))
    moods = [None if (labels := said(entry)) is None else labels["mood"] for entry in entries]
    assert moods == ["bad", "bad", "mixed", "good", None, "bad", None, None]  # nothing of 5, which is known truth
    assert client.post("/ml/p/setup", json=SETUP).json()["model_version"] == "hitl-suggests-consensus-0-0-1"


def test_never_means_nothing(client: httpx.Client, one: One) -> None:
    choosing(one, "never")
    assert predicted(client, *range(1, 9)) == [[]] * 8
    assert client.post("/ml/p/setup", json=SETUP).json() == {"model_version": "hitl-suggests-never"}


def test_tasks_of_others_get_nothing_in_their_place(client: httpx.Client) -> None:
    assert [entry == [] for entry in predicted(client, 999, 4, 12345678901234567890, 4, 7)] == [
        True,
        False,
        True,
        False,
        True,
    ]
    assert predicted(client) == []


def test_a_configuration_that_was_changed_since_gets_nothing_that_does_not_fit(client: httpx.Client) -> None:
    other = CONFIG.replace('value="good"', 'value="fine"')
    assert predicted(client, 4, 6, config=other)[0] == []
    assert predicted(client, 4, config="<View>") == [[]]
    assert predicted(client, 4, config='<View><Image name="i" value="$i"/></View>') == [[]]


def test_nothing_is_suggested_before_the_project_is_loaded(client: httpx.Client, one: One) -> None:
    one.snapshot = None
    assert client.get("/ml/p/health").status_code == 200
    assert client.post("/ml/p/setup", json=SETUP).json() == {"model_version": "hitl-suggests-nothing"}
    assert predicted(client, 4) == [[]]


def test_the_version_changes_with_what_is_suggested_and_with_nothing_else(tmp_path: Path) -> None:
    def version(name: str, **changes: Any) -> str:
        folder = tmp_path / name
        folder.mkdir()
        page = rows(8, changes.get("said", {(1, "a"): {"mood": "bad"}}), changes.get("predicted", {4: ALL}))
        snapshot = stored(folder, page)
        return str(snapshot.suggestions.version)

    first = version("first")
    assert version("again") == first
    assert version("labeled", said={(n, "b"): {"mood": "good"} for n in range(1, 9)}) == first
    assert version("learned", predicted={4: {**ALL, "mood": DOUBT}}) != first
    assert version("more", predicted={4: ALL, 5: ALL}) != first


SPANS = """<View><Labels name="who" toName="text"><Label value="PER"/><Label value="ORG"/></Labels>
<Text name="text" value="$text"/></View>"""
BOXES = """<View><Image name="image" value="$image"/>
<RectangleLabels name="seen" toName="image"><Label value="cat"/><Label value="dog"/></RectangleLabels></View>"""


@pytest.mark.parametrize(
    ("config", "question", "label", "data"),
    [
        (SPANS, "who", spans_as_label([(0, 3, "PER"), (9, 12, "ORG")]), {"text": "Ann went IBM"}),
        (BOXES, "seen", boxes_as_label(90, 120, [(50.0, 20.0, 10.0, 10.0, "cat")]), {"image": "a.png"}),
    ],
)
def test_spans_and_boxes_are_suggested_from_the_consensus_alone(
    tmp_path: Path, config: str, question: str, label: str, data: dict[str, Any]
) -> None:
    page = rows(3, {(n, who): {question: label} for n in (1, 2) for who in "abc"})
    page = replace(page, items=tuple(replace(item, data=data) for item in page.items))
    for suggest, wanted in (("consensus", [label, label, None]), ("model", [None] * 3)):
        folder = tmp_path / suggest
        folder.mkdir()
        snapshot = stored(folder, page, config, suggest)
        one = One(snapshot.settings, snapshot)
        with (
            serving(application({"p": one})) as url,
            httpx.Client(base_url=url, auth=(USER, PASSWORD), timeout=60) as client,
        ):
            entries = predicted(client, 1, 2, 3, config=config)
        read = [None if entry == [] else parse(config).read(entry["result"])[question] for entry in entries]
        assert read == wanted


@pytest.mark.parametrize("route", ["health", "setup", "predict", "versions"])
def test_nobody_gets_in_without_a_token(client: httpx.Client, route: str) -> None:
    method = "GET" if route in ("health", "versions") else "POST"
    for auth in (None, (USER, "wrong"), ("", "")):
        for project in ("p", "unknown"):  # whether there is such a project is not told either
            answer = httpx.request(
                method, f"{client.base_url}/ml/{project}/{route}", auth=auth, content=b"{}", timeout=60
            )
            assert answer.status_code == 401
            assert answer.headers["WWW-Authenticate"] == 'Basic realm="hitl"'
    assert client.request(method, f"/ml/unknown/{route}", content=b"{}").status_code == 404
    assert client.request(method, f"/ml/t/{route}", content=b"{}").status_code == 404  # it is no Label Studio's


def test_a_token_of_another_project_does_not_get_in(one: One) -> None:
    app = application({"p": one, "q": one}, lambda user, password, project: project == "q")
    with serving(app) as url:
        assert httpx.get(f"{url}/ml/q/health", auth=(USER, PASSWORD), timeout=60).status_code == 200
        assert httpx.get(f"{url}/ml/p/health", auth=(USER, PASSWORD), timeout=60).status_code == 401


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"{}", b'{"tasks": 7}', b'{"tasks": [{"data": {}}]}', b'{"tasks": [{"id": null}]}']
)
def test_another_body_is_an_error_that_says_so(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/ml/p/predict", content=body)
    assert answer.status_code == 400
    assert "expected what Label Studio sends" in answer.json()["detail"]


def test_a_body_that_is_too_large_is_refused(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "LARGEST_BODY", 1000)
    assert client.post("/ml/p/predict", json=recorded(*range(1, 9))).status_code == 413


def test_messages_are_taken_from_anybody_and_nothing_follows(client: httpx.Client) -> None:
    message = {"action": "ANNOTATION_CREATED", "annotation": {"id": 1}, "task": {"id": 1}, "project": {"id": 1}}
    for project in ("p", "unknown"):
        answer = httpx.post(f"{client.base_url}/ml/{project}/webhook", json=message, timeout=60)
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert httpx.post(f"{client.base_url}/ml/p/webhook", content=b"x" * 200_000, timeout=60).status_code == 200
    started = {"action": "START_TRAINING", "project": {"id": 1}}
    assert client.post("/ml/p/webhook", json=started).status_code == 200
