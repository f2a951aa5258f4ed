"""Langfuse, Opik and LangSmith: whose answers count, in the shapes of their APIs, SDKs and pages."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from tests.command_line import Run
from tests.connectors.exports.reading import answers, read, write

ROOT = Path(__file__).parents[3]
OLD, NEW = "2026-03-01T09:00:00.000Z", "2026-03-02T09:00:00.000Z"


def langfuse(trace: str, value: Any, who: str | None = "ann", /, **more: Any) -> dict[str, Any]:
    """A score as the page Scores exports it."""
    score = {"id": "s", "traceId": trace, "sessionId": None, "datasetRunId": None, "timestamp": OLD}
    score |= {"source": "ANNOTATION", "name": "right", "dataType": "CATEGORICAL", "value": 0, "stringValue": value}
    score |= {"comment": "a, b", "metadata": "{}", "observationId": None, "traceName": "chat", "userId": "end-user"}
    return score | {"traceTags": "[]", "environment": "default", "authorUserName": who} | more


def number(trace: str, value: Any, who: str | None = "ann", /, **more: Any) -> dict[str, Any]:
    return langfuse(trace, None, who, dataType="NUMERIC", value=value) | more


def third(subject: Any, value: Any, kind: str = "CATEGORICAL") -> dict[str, Any]:
    """A score of the API v3 with all fields."""
    score = {"id": "s", "projectId": "p", "name": "right", "value": value, "dataType": kind, "source": "ANNOTATION"}
    return score | {"timestamp": OLD, "updatedAt": OLD, "subject": subject, "authorUserId": "u1", "queueId": "q"}


def entry(value: Any, category: str | None = None, source: str = "ui", time: str = OLD) -> dict[str, Any]:
    return {"value": value, "category_name": category, "source": source, "last_updated_at": time, "reason": None}


def opik(trace: str, name: str = "right", /, **by: Any) -> dict[str, Any]:
    """A trace with the answers of each author, as the SDK writes it."""
    mean = {"name": name, "value": 0.5, "category_name": "yes, no", "source": "ui", "created_by": ", ".join(by)}
    scores = [mean | {"value_by_author": by}] if by else []
    return {"id": trace, "name": "chat", "start_time": OLD, "project_id": "p", "feedback_scores": scores}


def langsmith(run: str | None, value: Any, who: str | None = "u1", kind: str = "app", **more: Any) -> dict[str, Any]:
    """Feedback as the API writes it."""
    feedback = {"id": "f", "run_id": run, "trace_id": run, "key": "right", "score": None, "value": value}
    source = {"type": kind, "user_id": who, "user_name": None, "metadata": {}}
    return feedback | {"created_at": OLD, "modified_at": OLD, "comment": None, "feedback_source": source} | more


EXPORTS = {
    "langfuse.csv": [langfuse(f"t{n}", "no" if n % 3 else "yes", who) for n in range(6) for who in ("ann", "bob")],
    "opik.json": [opik(f"t{n}", ann=entry(1.0, "no" if n % 3 else "yes"), bob=entry(1.0, "no")) for n in range(6)],
    "langsmith.jsonl": [langsmith(f"r{n}", "no" if n % 3 else "yes", who) for n in range(6) for who in ("u1", "u2")],
}
YES = {("t", "ann"): "yes"}
RUN = {("t", "u1"): "yes"}
BAD = {"name": "right", "value": 1, "source": "ANNOTATION", "dataType": "CATEGORICAL"}


@pytest.mark.parametrize(
    ("records", "expected", "skipped"),
    [
        ([langfuse("t", "yes")], YES, ""),
        ([langfuse("t", "no", timestamp=OLD), langfuse("t", "yes", timestamp=NEW)], YES, "1 replaced answer"),
        ([langfuse("t", "yes", timestamp=NEW), langfuse("t", "no", timestamp=OLD)], YES, "1 replaced answer"),
        ([langfuse("t", "yes"), langfuse("t", "no", None, source="EVAL")], YES | {("t", "EVAL"): "no"}, ""),
        ([langfuse("t", "yes"), langfuse("t", "no", None, source="API")], YES | {("t", None): "no"}, ""),
        ([langfuse("t", "yes", observationId="o")], {("o", "ann"): "yes"}, ""),
        ([langfuse("t", "True", value=1, dataType="BOOLEAN")], {("t", "ann"): "True"}, ""),
        ([langfuse("t", "False", value=0, dataType="BOOLEAN")], {("t", "ann"): "False"}, ""),
        ([langfuse("t", "yes"), langfuse("t", "so", dataType="TEXT")], YES, "1 text score"),
        ([langfuse("t", "yes"), langfuse("", "no", traceId=None, sessionId="s")], YES, "1 score of a session or exper"),
        ([langfuse("t", "yes"), langfuse("t", "no", "bob", name="right_hitl")], YES, "1 consensus label of hitl"),
        ([langfuse("t", "yes"), BAD, "x", langfuse("u", None)], YES, "2 unreadable records, 1 empty answer"),
        ([number("t", 4), number("u", 3.0, "bob")], {("t", "ann"): "4", ("u", "bob"): "3"}, ""),
        ([langfuse("t", "yes"), number("t", 1, "bob"), number("u", 0.5, "bob")], YES, "2 numbers that are no class"),
        ([langfuse("t", "yes"), *(number(f"t{n}", n, "bob") for n in range(12))], YES, "12 numbers that are no class"),
        ([number("t", 1), number("t", 0.7, None, source="EVAL")], {("t", "ann"): "1"}, "1 number that is no class"),
        ([{"trace_id": "t", "data_type": "BOOLEAN", "value": 1.0, "string_value": "True", "name": "right",
           "source": "ANNOTATION", "updated_at": OLD}], {("t", None): "True"}, ""),
        ([third({"kind": "observation", "id": "o", "traceId": "t"}, True, "BOOLEAN")], {("o", "u1"): "True"}, ""),
        ([third({"kind": "trace", "id": "t"}, "yes"), third({"kind": "session", "id": "s"}, "no")], RUN, "1 score of"),
        ([{"data": [third({"kind": "trace", "id": "t"}, "yes"), None], "meta": {"limit": 50}}], RUN, "1 unreadable"),
        ([opik("t", ann=entry(1.0, "yes"))], YES, ""),
        ([opik("t", ann=entry(1.0, "yes"), bob=entry(0.0, "no"))], YES | {("t", "bob"): "no"}, ""),
        ([opik("t", ann=entry(1.0, "yes"), bob=entry(0.0, "no", "online_scoring"))],
            YES | {("t", "online_scoring"): "no"}, ""),
        ([opik("t", ann=entry(1.0, "yes"), key=entry(0.0, "no") | {"author": "bob"})], YES | {("t", "bob"): "no"}, ""),
        ([opik("t", ann=entry(1.0, "yes"), bob=entry(0.25))], YES, "1 number that is no class"),
        ([opik("t", ann=entry(1.0, "yes"), bob=3), opik("u")], YES, "1 unreadable record, 1 trace or span without"),
        ([opik("t", ann=entry(1.0, "yes")), {"feedback_scores": [3]}, opik("u") | {"feedback_scores": [3, {}]}],
            YES, "3 unreadable records"),
        ([opik("t", ann=entry(1.0, "yes")), opik("t", "right_hitl", me=entry(0.0, "no"))], YES, "1 consensus label of"),
        ([opik("t") | {"feedback_scores": [{"name": "right", "value": 5.0, "source": "sdk", "created_by": "ann"}]}],
            {("t", "ann"): "5"}, ""),
        ([{"trace": opik("t", ann=entry(1.0, "yes")), "spans": [opik("s", ann=entry(0.0, "no"))], "attachments": []}],
            YES | {("s", "ann"): "no"}, ""),
        ([{"content": [opik("t", ann=entry(1.0, "yes")), 7], "page": 1, "total": 2}], YES, "1 unreadable record"),
        ([langsmith("t", "yes", score=1.0)], RUN, ""),
        ([langsmith("t", None, score=1), langsmith("u", None, score=0)], {("t", "u1"): "1", ("u", "u1"): "0"}, ""),
        ([langsmith("t", None, score=True)], {("t", "u1"): "true"}, ""),
        ([langsmith("t", "yes", modified_at=NEW), langsmith("t", "no")], RUN, "1 replaced answer"),
        ([langsmith("t", "yes"), langsmith("t", "no", "u1", "auto_eval")], RUN | {("t", "auto_eval"): "no"}, ""),
        ([langsmith("t", "yes"), langsmith("t", None, None, "model", score=0.5)], RUN, "1 number that is no class"),
        ([langsmith("t", "yes"), langsmith("t", {"a": 1}), langsmith("t", None)], RUN, "1 comparison or other answer"),
        ([langsmith("t", "yes"), langsmith("t", 1, comparative_experiment_id="c")], RUN, "1 comparison or other ans"),
        ([langsmith("t", "yes"), langsmith(None, "no"), langsmith("t", ["a"]), langsmith("u", "no", feedback_source=3)],
            RUN, "3 unreadable records"),
        ([langsmith("t", "yes"), langsmith("t", "no", key="right_hitl", kind="api")], RUN, "1 consensus label of hitl"),
    ],
)  # fmt: skip
def test_answers_that_count(tmp_path: Path, records: Any, expected: Any, skipped: str) -> None:
    for name in ("export.json", "export.jsonl"):
        labels = read(tmp_path, records, name)
        assert answers(labels) == expected
        assert len(labels.table) == len(expected)
        assert all(part in labels.summary for part in skipped.split(", "))
        assert labels.judges == [who for _, who in expected if who in ("EVAL", "online_scoring", "auto_eval")]


def test_a_judge_is_a_model_in_every_command(run: Run, tmp_path: Path) -> None:
    people = [langfuse(f"t{n}", "no" if n % 3 else "yes", who) for n in range(30) for who in ("ann", "bob", "cy")]
    judge = [langfuse(f"t{n}", "no" if n % 2 else "yes", None, source="EVAL") for n in range(30)]
    write(tmp_path, people + judge, "scores.csv")
    code, out, err = run("judge", "scores.csv", "--json")
    assert (code, [row["judge"] for row in json.loads(out)["judges"]]) == (0, ["EVAL"]), err
    assert "read as Langfuse scores: 30 traces (observationId, else traceId), 3 authors (authorUserId)" in err
    assert "1 judge (EVAL), question 'right'" in err
    _, out, _ = run("annotators", "scores.csv", "--json")
    rows = json.loads(out)["annotators"]
    assert {row["annotator"] for row in rows if row["labels"]} == {"ann", "bob", "cy"}
    write(tmp_path, judge, "judge.csv")
    code, _, err = run("combine", "judge.csv")
    assert (code, "no author named, 1 judge (EVAL)" in err) == (0, True), err


@pytest.mark.parametrize("name", EXPORTS)
def test_what_the_documented_lines_write_is_never_read_as_an_answer(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write(tmp_path, EXPORTS[name], name)
    assert run("combine", name, "--method", "majority", "--output", "labels.csv")[0] == 0
    clients = {tool: MagicMock() for tool in ("langfuse", "opik", "langsmith")}
    for tool, client in clients.items():
        monkeypatch.setitem(sys.modules, tool, client)
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "reference" / "exports.md").read_text()
    exec("\n".join(re.findall(r"```python no_run\n(.*?)```", page, re.DOTALL)), {})
    scores = [call.kwargs for call in clients["langfuse"].get_client().create_score.call_args_list]
    traces = clients["opik"].Opik().log_traces_feedback_scores.call_args.args[0]
    feedback = [(*call.args, call.kwargs["value"]) for call in clients["langsmith"].Client().create_feedback.mock_calls]
    sent = {
        "langfuse.csv": [
            third({"kind": "trace", "id": one["trace_id"]}, one["value"]) | {"name": one["name"], "source": "API"}
            for one in scores
        ],
        "opik.json": [opik(one["id"], one["name"], me=entry(one["value"], one["category_name"])) for one in traces],
        "langsmith.jsonl": [langsmith(item, label, "u9", "api", key=key) for item, key, label in feedback],
    }
    again = read(tmp_path, [*EXPORTS[name], *sent[name]], "again.json")
    assert "6 consensus labels of hitl" in again.summary
    assert answers(again) == answers(read(tmp_path, EXPORTS[name], name))
