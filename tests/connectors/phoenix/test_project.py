"""A project on a real Phoenix: people, judges, edits, deletions and kills, and the next traces of each person."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hitl.errors import Refused
from tests.command_line import Run, forked
from tests.connectors.phoenix.server import Project, Server, answered, running
from tests.connectors.servers import KILLED

pytestmark = [pytest.mark.server, pytest.mark.journey]

TRACES, PEOPLE = 200, ("ann", "bob", "cyd")


def begin(run: Run, made: Project, *people: str) -> None:
    words = ("init", "--phoenix", made.server.url, "--project", made.name, "--annotators", ",".join(people))
    code, out, err = run(*words)
    assert code == 0, err
    assert "correct: yes, no" in out


def consensus(made: Project, n: int) -> list[dict[str, Any]]:
    return [one for one in made.annotations(n) if one["name"] == "correct_hitl"]


def test_people_and_judges_on_two_hundred_traces(run: Run, phoenix: Server, tmp_path: Path) -> None:
    made, rng = phoenix.project("chat", TRACES, {"correct": ["yes", "no"]}), np.random.default_rng(0)
    truth = rng.random(TRACES) < 0.6
    accuracy = {"ann": 0.95, "bob": 0.85, "cyd": 0.7, "gpt": 0.75, "claude": 0.8}

    def opinion(who: str, n: int) -> str:
        return ("no", "yes")[int(truth[n] == (rng.random() < accuracy[who]))]

    for n in range(TRACES):
        for judge in ("gpt", "claude"):
            made.say(n, judge, opinion(judge, n), kind="LLM")
    begin(run, made, *PEOPLE)
    for _ in range(4):
        code, _, err = run("run")
        assert code == 0, err
        for ask in json.loads(run("plan", "--json")[1])["plan"]["asks"]:
            made.say(n := made.traces.index(ask["item"]), ask["annotator"], opinion(ask["annotator"], n))
    made.say(0, "ann", "no")
    made.delete("cyd")
    people = {n: [one for one in made.annotations(n) if one not in consensus(made, n)] for n in range(0, TRACES, 20)}
    assert run("run")[0] == 0
    code, out, _ = run("audit")
    assert (code, "platform and store agree" in out) == (0, True)
    assert "cyd" not in run("annotators")[1].split("Not")[0]
    assert run("export", "labels.csv")[0] == 0
    label = dict(line.replace('"', "").split(",")[:2] for line in Path("labels.csv").read_text().splitlines()[1:])
    right = 0
    for n in range(TRACES):
        (own,) = consensus(made, n)
        assert (own["annotator_kind"], own["identifier"]) == ("CODE", "hitl:consensus")
        assert own["result"]["label"] == label[made.traces[n]]
        assert own["result"]["score"] == own["metadata"]["confidence"]
        right += (own["result"]["label"] == "yes") == truth[n]
    assert right > 0.85 * TRACES
    for n, rows in people.items():
        assert [one for one in made.annotations(n) if one not in consensus(made, n)] == rows
    assert run("run")[1].startswith("nothing has changed since")


def test_a_kill_between_any_two_requests_loses_and_doubles_nothing(run: Run, phoenix: Server, tmp_path: Path) -> None:
    made = phoenix.project("kills", 5, {"correct": ["yes", "no"]})
    for n in range(5):
        made.say(n, "ann", "yes")
        made.say(n, "gpt", "no" if n == 3 else "yes", kind="LLM")
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
    assert kills > 4
    assert run("run")[0] == 0
    code, out, _ = run("audit")
    assert (code, "platform and store agree" in out) == (0, True), out
    assert [len(consensus(made, n)) for n in range(5)] == [1] * 5


def test_changes_are_noticed_and_pages_that_stay_are_not_read_again(phoenix: Server) -> None:
    made = answered(phoenix, "changes")
    connector = made.connect()
    *_, last = connector.pull(None)
    assert last.live == frozenset(made.traces)  # roots alone
    assert list(connector.pull(json.loads(json.dumps(last.cursor)))) == []
    made.say(3, "cyd", "no")
    *_, last = pages = list(connector.pull(last.cursor))
    assert ("cyd", "no") in {(row.annotator, row.label) for page in pages for row in page.annotations}
    made.say(3, "cyd", "perhaps")
    *_, last = pages = list(connector.pull(last.cursor))
    assert "'perhaps' is none of yes, no" in {row.note for page in pages for row in page.annotations}
    made.delete("cyd")
    pages = list(connector.pull(last.cursor))
    assert "cyd" not in {row.annotator for page in pages for row in page.annotations}


def test_what_is_wrong_is_said(run: Run, phoenix: Server) -> None:
    phoenix.call("POST", "/v1/projects", name="bare")
    code, _, err = run("init", "--phoenix", phoenix.url, "--project", "bare")
    assert (code, "has no annotation config that is categorical" in err) == (Refused.exit_code, True)
    code, _, err = run("init", "--phoenix", phoenix.url, "--project", "nowhere")
    assert (code, "source.project" in err) == (Refused.exit_code, True)
    assert "--project" in run("init", "--phoenix", phoenix.url)[2]


def test_people_who_log_in_have_their_names(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of users belong to the annotators of these names, read by an account that is no admin."""
    (folder := tmp_path / "server").mkdir()
    with running(folder, login=True) as server:
        made = server.project("chat", 4, {"correct": ["yes", "no"]})
        for name, n in (("ann", 0), ("ann", 1), ("bob", 2)):
            one = {"span_id": made.traces[n], "name": "correct", "annotator_kind": "HUMAN", "result": {"label": "yes"}}
            with server.member(f"{name}{n}") as person:
                person.post("/v1/span_annotations", params={"sync": "true"}, json={"data": [one]}).raise_for_status()
        key = 'mutation { createUserApiKey(input: {name: "hitl"}) { jwt } }'
        with server.member("hitl") as own:
            answer = own.post("/graphql", json={"query": key}).json()
        monkeypatch.setenv("PHOENIX_API_KEY", answer["data"]["createUserApiKey"]["jwt"])
        assert run("init", "--phoenix", server.url, "--project", "chat", "--annotators", "ann0,ann1,bob2")[0] == 0
        code, _, err = run("run")
        assert code == 0, err
        assert run("run")[1].startswith("nothing has changed since")
        found = json.loads(run("plan", "--json")[1])["plan"]["asks"]
        asked = {(one["annotator"], one["item"]) for one in found}
        assert {who for who, _ in asked} == {"ann0", "ann1", "bob2"}
        assert all(name in run("annotators")[1] for name in ("ann0", "ann1", "bob2"))
        assert not asked & {("ann0", made.traces[0]), ("ann1", made.traces[1]), ("bob2", made.traces[2])}
        monkeypatch.setenv("PHOENIX_API_KEY", "wrong")
        assert "Set PHOENIX_API_KEY" in run("run")[2]
