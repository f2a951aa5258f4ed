"""An experiment on a real MLflow from the first run to the last: reviewers, judges, edits, deletions, and kills."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hitl.errors import Refused, Unreachable
from tests.command_line import Run, forked
from tests.connectors.mlflow.server import API, PASSWORD, Experiment, Server, answered, running
from tests.connectors.servers import KILLED

pytestmark = [pytest.mark.server, pytest.mark.journey]

TRACES, PEOPLE = 200, ("ann", "bob", "cyd")
FORM = {"correct": {"categorical": {"options": ["yes", "no"]}}}


def begin(run: Run, made: Experiment, *people: str) -> None:
    code, out, err = run(
        "init", "--mlflow", made.server.url, "--experiment", made.name, "--annotators", ",".join(people)
    )
    assert code == 0, err
    assert "correct: yes, no" in out


def consensus(made: Experiment, n: int) -> list[dict[str, Any]]:
    return [one for one in made.assessments(n) if one["assessment_name"] == "correct_hitl"]


def test_reviewers_and_judges_on_two_hundred_traces(run: Run, mlflow: Server, tmp_path: Path) -> None:
    made, rng = mlflow.experiment("reviews", TRACES, FORM), np.random.default_rng(0)
    truth = rng.random(TRACES) < 0.6
    accuracy = {"ann": 0.95, "bob": 0.85, "cyd": 0.7, "gpt": 0.75, "claude": 0.8}

    def opinion(who: str, n: int) -> str:
        return ("no", "yes")[int(truth[n] == (rng.random() < accuracy[who]))]

    for n in range(TRACES):
        for judge in ("gpt", "claude"):
            made.say(n, judge, opinion(judge, n), kind="LLM_JUDGE")
    begin(run, made, *PEOPLE)
    keys: dict[tuple[str, int], str] = {}
    for turn in range(4):
        code, _, err = run("run")
        assert code == 0, err
        for who in PEOPLE:
            waiting = made.queue(f"hitl: {who}")
            if not turn:
                plan = json.loads(run("plan", "--json")[1])["plan"]["asks"]
                assert [made.traces[n] for n in waiting] == [one["item"] for one in plan if one["annotator"] == who]
            for n in waiting[:40]:
                keys[who, n] = made.say(n, who, opinion(who, n))
    (_, first), second, third = sorted(keys)[:3]
    made.change(first, keys[sorted(keys)[0]], "no")
    made.delete(second[1], keys[second])
    made.say(third[1], third[0], "no", overrides=keys[third])
    people = {n: [one for one in made.assessments(n) if one not in consensus(made, n)] for n in range(0, TRACES, 20)}
    assert run("run")[0] == 0
    code, out, _ = run("audit")
    assert (code, "platform and store agree" in out) == (0, True)
    assert run("export", "labels.csv")[0] == 0
    label = dict(line.replace('"', "").split(",")[:2] for line in Path("labels.csv").read_text().splitlines()[1:])
    right = 0
    for n in range(TRACES):
        (own,) = consensus(made, n)
        assert own["feedback"]["value"] == label[made.traces[n]]
        assert own["source"] == {"source_type": "CODE", "source_id": "hitl"}
        assert 0.5 <= float(own["metadata"]["confidence"]) <= 1
        right += (own["feedback"]["value"] == "yes") == truth[n]
    assert right > 0.85 * TRACES
    for n, rows in people.items():
        assert [one for one in made.assessments(n) if one not in consensus(made, n)] == rows
    assert run("run")[1].startswith("nothing has changed since")


def test_a_kill_between_any_two_requests_loses_and_doubles_nothing(run: Run, mlflow: Server, tmp_path: Path) -> None:
    made = mlflow.experiment("kills", 5, FORM)
    for n in range(5):
        made.say(n, "ann", "yes")
        made.say(n, "gpt", "no" if n == 3 else "yes", kind="LLM_JUDGE")
    begin(run, made, "ann", "bob")
    at = kills = 0
    while True:
        at += 1
        done = forked(KILLED, str(at), "run", folder=tmp_path)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        kills += 1
        made.say(kills % 5, f"guest{kills}", ("yes", "no")[kills % 2])  # so that every run has something to write
    assert kills > 12
    assert run("run")[0] == 0
    code, out, _ = run("audit")
    assert (code, "platform and store agree" in out) == (0, True), out
    for n in range(5):
        assert len(consensus(made, n)) == 1
    queues = mlflow.call("GET", f"{API}/review-queues/list", experiment_id=made.number)["review_queues"]
    assert len({one["name"] for one in queues}) == len(queues)
    waiting = made.queue("hitl: bob")
    assert len(set(waiting)) == len(waiting)


def test_changes_are_noticed_and_pages_that_stay_are_not_read_again(mlflow: Server) -> None:
    made = answered(mlflow, "changes")
    connector = made.connect()
    *_, last = connector.pull(None)
    assert last.live == frozenset(made.traces)
    assert list(connector.pull(json.loads(json.dumps(last.cursor)))) == []
    key = made.say(3, "cyd", "no")
    *_, last = pages = list(connector.pull(last.cursor))
    assert key in {row.key for page in pages for row in page.annotations}
    made.delete(3, key)
    *_, last = pages = list(connector.pull(last.cursor))
    assert key not in {row.key for page in pages for row in page.annotations}
    mlflow.call("POST", "/api/3.0/mlflow/traces/delete-traces", experiment_id=made.number, request_ids=[made.traces[0]])
    *_, last = connector.pull(last.cursor)
    assert last.live == frozenset(made.traces[1:])


def test_people_decline_and_are_called_in_any_case(run: Run, mlflow: Server) -> None:
    """A trace that Ann declines is not asked of her again, and she is one person however her name is written."""
    made = mlflow.experiment("declined", 4, FORM)
    begin(run, made, "Ann", "bob")
    assert run("run")[0] == 0
    first, second, *_ = made.queue("hitl: ann") + made.queue("hitl: bob")
    made.decline(first, "ann")
    made.say(second, "ANN", "yes")
    made.say(second, "Ann", "no")
    for _ in range(2):
        assert run("run")[0] == 0
        assert not {first, second} & {*made.queue("hitl: ann")}
        people = json.loads(run("plan", "--json")[1])["plan"]["asks"]
        assert {one["annotator"] for one in people} <= {"ann", "bob"}
    assert "1 answer by 1 annotator, 1 skip" in run("status")[1]
    assert run("audit")[0] == 0
    assert run("annotators", "--json")[1].count('"Ann"') == 0


def test_a_question_made_later_reaches_the_queues(run: Run, mlflow: Server) -> None:
    made = mlflow.experiment("later", 4, FORM)
    begin(run, made, "ann", "bob")
    assert run("run")[0] == 0
    form = {"pass_fail": {"positive_label": "Safe", "negative_label": "Harmful"}}
    given = {"experiment_id": made.number, "name": "safe", "type": "FEEDBACK", "title": "safe", "input": form}
    mlflow.call("POST", f"{API}/label-schemas/create", **given)
    waiting = {name: made.queue(f"hitl: {name}") for name in ("ann", "bob")}
    for n in waiting["ann"]:
        made.say(n, "ann", "yes")
    for n in waiting["bob"]:
        made.say(n, "bob", "yes")
    assert run("run")[0] == 0
    queues = mlflow.call("GET", f"{API}/review-queues/list", experiment_id=made.number)["review_queues"]
    assert [len(one["schema_ids"]) for one in queues] == [2, 2]
    assert made.queue("hitl: ann")
    assert run("audit")[0] == 0


def test_a_trace_that_ends_after_the_run_is_read_again(mlflow: Server) -> None:
    made = mlflow.experiment("unfinished", 1, FORM)
    made.add(0, state="IN_PROGRESS", response_preview="")
    *_, last = made.connect().pull(None)
    made.add(0, response_preview="at last")
    (item,) = [item for page in made.connect().pull(last.cursor) for item in page.items]
    assert item.data["response"] == "at last"


def test_a_trace_that_is_deleted_during_a_pull_hides_no_other(mlflow: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hitl.connectors.mlflow.client.PAGE", 2)
    made = mlflow.experiment("deleted meanwhile", 7, FORM)
    for n in range(2, 7):
        made.add(n, request_time="2026-01-02T00:00:00.123Z")  # more than a page at one time
    connector = made.connect()
    ask, searches = connector.client.ask, []

    def deleting(path: str, **body: Any) -> Any:
        searches.extend([path] if path.endswith("search") else [])
        if len(searches) == 2:
            gone = {"experiment_id": made.number, "request_ids": [made.traces[0]]}
            mlflow.call("POST", f"{API}/traces/delete-traces", **gone)
        return ask(path, **body)

    monkeypatch.setattr(connector.client, "ask", deleting)
    *_, last = connector.pull(None)
    assert last.live is not None
    assert last.live >= {*made.traces[1:]}
    *_, last = connector.pull(last.cursor)
    assert last.live == {*made.traces[1:]}


def test_another_experiment_of_the_same_name_deletes_nothing(run: Run, mlflow: Server) -> None:
    made = mlflow.experiment("renamed", 3, FORM)
    made.say(0, "ann", "yes")
    begin(run, made, "ann", "bob")
    assert run("run")[0] == 0
    mlflow.call("POST", "/api/2.0/mlflow/experiments/update", experiment_id=made.number, new_name="renamed before")
    other = mlflow.experiment("renamed", 1, FORM)
    code, _, err = run("run")
    assert (code, f"is experiment number {other.number} now" in err, "pull --full" in err) == (77, True, True)
    assert "3 items, 1 answer" in run("status")[1]
    Path("hitl.toml").write_text(Path("hitl.toml").read_text().replace('"renamed"', '"renamed before"', 2))
    assert run("pull", "--full")[0] == 0
    assert run("run")[0] == 0
    assert "3 items, 1 answer" in run("status")[1]


def test_what_is_wrong_is_said(run: Run, mlflow: Server) -> None:
    made = mlflow.experiment("nothing to ask", 1, {"why": {"text": {}}})
    code, _, err = run("init", "--mlflow", mlflow.url, "--experiment", made.name)
    assert (code, "has no question of the kind pass / fail or categorical" in err) == (Refused.exit_code, True)
    code, _, err = run("init", "--mlflow", mlflow.url, "--experiment", "nowhere")
    assert (code, "'nowhere'" in err and "source.experiment" in err) == (Refused.exit_code, True), err
    code, _, err = run("init", "--mlflow", "http://127.0.0.1:9", "--experiment", "x")
    assert (code, "Check that MLflow runs there" in err) == (Unreachable.exit_code, True)
    code, _, err = run("init", "--mlflow", mlflow.url)
    assert (code != 0, "--experiment" in err) == (True, True)


def test_a_server_with_logins(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a login nothing is read, with the permission READ nothing is written, and with EDIT all of it is."""
    (folder := tmp_path / "server").mkdir()
    with running(folder, login=True) as server:
        made = server.experiment("chat", 4, FORM)
        for n in range(3):
            made.say(n, "ann", "yes" if n % 2 else "no")
        server.call("POST", "/api/2.0/mlflow/users/create", username="hitl", password=PASSWORD)
        init = ("init", "--mlflow", server.url, "--experiment", "chat", "--annotators", "ann,bob")
        code, _, err = run(*init)
        assert (code, "Set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD" in err) == (77, True)
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "hitl")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
        assert run(*init)[0] == 0
        code, _, err = run("run")
        assert (code, "hitl's account needs the permission EDIT on the experiment" in err) == (77, True)
        assert not consensus(made, 0)
        grant = {"username": "hitl", "permission": "EDIT", "resource_type": "experiment", "resource_id": made.number}
        server.call("POST", f"{API}/users/permissions/grant", **grant)
        code, _, err = run("run")
        assert code == 0, err
        assert consensus(made, 0)
        assert set(made.queue("hitl: bob")) == set(range(4))
        assert run("audit")[0] == 0
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "wrong")
        assert run("run")[0] == 77
