"""`hitl certify` inside a project: the audit is asked on the platform, and its answers count from then on."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest

from hitl.store import Store
from tests.command_line import Run

ITEMS = 60
STAMP = "2026-01-01T00:00:00+00:00"


def right(item: object) -> str:
    """The true class of an item."""
    return ("cat", "dog")[int(str(item)) % 2]


@pytest.fixture
def project(run: Run, tmp_path: Path) -> Path:
    """60 items with three answers each, 57 of them right, after a first run; eva has not answered yet."""
    rows = [
        {"item": n, "annotator": who, "label": right(n + (n % 20 == 3)), "time": STAMP}
        for n in range(ITEMS)
        for who in ("ann", "bob", "cyd")
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "annotations.csv", index=False)
    assert run("init", "--tables", ".", "--name", "p")[0] == 0
    settings = Path("hitl.toml").read_text()
    Path("hitl.toml").write_text(settings.replace("annotators = [", 'annotators = ["eva", '))
    assert run("run")[0] == 0
    return tmp_path


def asked(folder: Path, who: str) -> list[str]:
    with Store(f"sqlite:///{folder}/.hitl/hitl.db") as store:
        plan = store.plan("p")
        assert plan is not None
        return [str(ask.item) for ask in plan.asks_of(who) if ask.sent_back]


def answer(who: str, answers: dict[str, str]) -> None:
    time.sleep(0.01)
    now = datetime.now(UTC).isoformat()
    lines = [f"{item},{who},{label},{now}\n" for item, label in answers.items()]
    with Path("annotations.csv").open("a") as file:
        file.writelines(lines)


def test_an_audit_is_asked_on_the_platform_and_proven(run: Run, project: Path) -> None:
    code, out, err = run(
        "certify", "--error", "8%", "--by", "eva", "--second", "ann", "--recheck", "0", "--batch", "20", "--seed", "3"
    )
    assert (code, err) == (3, "")
    assert "next: `hitl run` asks eva about 20 items" in out
    assert "Certificate: not proven after 0 audited labels" in run("status")[1]
    for _ in range(20):
        assert run("run")[0] == 0
        for who in ("eva", "ann"):
            waiting = json.loads(Path("certificate.json").read_text())
            items = [one["item"] for one in waiting["answers"] if one["first" if who == "eva" else "second"] is None]
            answer(who, {item: right(item) for item in asked(project, who) if item in items})
        assert run("run")[0] == 0
        code, out, err = run("certify", "--by", "eva", "--second", "ann", "-o", "mended.csv")
        if code != 3:
            break
    assert code == 0, out
    document = json.loads(Path("certificate.json").read_text())
    assert document["auditors"] == ["eva", "ann"]
    assert "auditors: eva, ann" in out
    assert re.search(r"Certificate: proven after .*\n  It is about the labels of 20", run("status")[1])
    assert json.loads(run("status", "--json")[1])["certificate"]["state"] == "proven"
    text = Path("certificate.json").read_text()
    Path("certificate.json").write_text(text[: len(text) // 2])
    code, out, _ = run("status")
    assert (code, "certificate.json: not a certificate" in out) == (0, True)
    Path("certificate.json").write_text(text)
    wrong = [one["item"] for one in document["answers"] if one["second"] not in (None, _label(document, one["item"]))]
    assert len(wrong) >= 1
    assert {int(item) % 20 for item in wrong} <= {3}
    mended = pd.read_csv("mended.csv", dtype=str).set_index("item")["label"]
    assert all(mended[item] == right(item) for item in wrong)
    assert run("verify", "certificate.json", "mended.csv")[0] == 0
    assert run("export", "later.csv")[0] == 0


def _label(document: dict[str, dict[str, list[str]]], item: str) -> str:
    return document["labels"]["labels"][document["labels"]["items"].index(item)]


def test_an_earlier_answer_of_the_auditor_does_not_count(run: Run, project: Path) -> None:
    run("certify", "--error", "8%", "--by", "ann", "--batch", "60")
    _, out, _ = run("certify", "--by", "ann", "--json")
    assert len(json.loads(out)["waiting"]["first"]) == 60
    answer("ann", {"7": right(8)})  # a table shows only answers that differ
    run("certify", "--by", "ann")  # before the answer is pulled, which does not ask again
    run("run")
    _, out, _ = run("certify", "--by", "ann", "--json")
    waiting = json.loads(out)["waiting"]["first"]
    assert len(waiting) == 59
    assert "7" not in waiting


def test_a_skip_of_the_auditor_counts_as_not_to_be_said(run: Run, project: Path) -> None:
    run("certify", "--error", "8%", "--by", "eva", "--batch", "60")
    answer("eva", {"9": ""})
    run("run")
    run("certify", "--by", "eva")
    answers = {one["item"]: one["first"] for one in json.loads(Path("certificate.json").read_text())["answers"]}
    assert answers["9"] == "?"
    assert answers["8"] is None


def test_drawn_items_that_are_deleted_count_as_wrong_and_do_not_stop_the_audit(run: Run, project: Path) -> None:
    run("certify", "--error", "8%", "--by", "eva", "--batch", "60")
    rows = pd.read_csv("annotations.csv", dtype=str)
    rows[~rows["item"].isin(["9", "11"])].to_csv("annotations.csv", index=False)
    answer("eva", {str(n): right(n) for n in range(ITEMS) if n not in (9, 11)})
    run("run")
    code, out, err = run("certify", "--by", "eva")
    assert "drawn items that are no longer in the project count as wrong: 11, 9" in err
    assert "after 60 audited labels, 5 of them wrong" in out
    assert code == 0
    answers = {one["item"]: one["first"] for one in json.loads(Path("certificate.json").read_text())["answers"]}
    assert [answers["9"], answers["11"], answers["13"]] == ["?", "?", right(13)]


def test_an_audit_does_not_go_on_with_other_names_of_classes(run: Run, project: Path) -> None:
    run("certify", "--error", "8%", "--by", "eva", "--batch", "60")
    before = Path("certificate.json").read_text()
    text = Path("annotations.csv").read_text()
    Path("annotations.csv").write_text(text.replace(",dog,", ",hound,"))
    answer("eva", {str(n): right(n).replace("dog", "hound") for n in range(ITEMS)})
    run("run")
    code, _, err = run("certify", "--by", "eva")
    assert (code, "auditors answer hound; the certificate has dog, no class of" in err) == (78, True)
    assert Path("certificate.json").read_text() == before
    Path("annotations.csv").write_text(text)
    answer("eva", {str(n): right(n) for n in range(ITEMS)})
    run("run")
    assert run("certify", "--by", "eva")[0] == 0


def test_an_audit_does_not_go_on_with_other_ids(run: Run, project: Path) -> None:
    run("certify", "--error", "8%", "--by", "eva", "--batch", "60")
    before = Path("certificate.json").read_text()
    rows = pd.read_csv("annotations.csv", dtype=str)
    rows.assign(item="x" + rows["item"]).to_csv("annotations.csv", index=False)
    toml = Path("hitl.toml").read_text()
    Path("hitl.toml").write_text(toml.replace("[source]\n", "[source]\nmax_shrink = 1.0\n"))
    run("run")
    code, _, err = run("certify", "--by", "eva")
    assert (code, "60 of the 60 items of the certificate are not in the project" in err) == (78, True)
    assert Path("certificate.json").read_text() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected --by, the annotator who audits, or a table of labels"),
        (["--by", "zoe"], "no annotator 'zoe'; expected one of ann, bob, cyd, eva, or a name that you add"),
        (["--by", "eva", "--second-answers", "s.csv"], "--second-answers: only with a table of labels"),
        (["--by", "eva", "--question", "colour"], "'colour' is not a question with one class for each item"),
        (["--by", "eva", "--per", "town"], "no column 'town'"),
    ],
)
def test_what_a_project_cannot_audit_is_said(run: Run, project: Path, arguments: list[str], message: str) -> None:
    code, _, err = run("certify", "--error", "5%", *arguments)
    assert code in (65, 78)
    assert message in err
    assert not Path("certificate.json").exists()
