"""`hitl audit` over tables: what the files have and the store lacks, and the other way round."""

from __future__ import annotations

import json
from pathlib import Path

from tests.command_line import Run

SETTINGS = """name = "p"
[source]
kind = "tables"
path = "labels"
[push]
consensus = false
"""


def test_audit_says_what_differs_and_fixes_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "labels").mkdir()
    table = tmp_path / "labels" / "annotations.csv"
    table.write_text("item,annotator,label\n1,ann,yes\n2,ann,no\n3,bob,no\n")
    (tmp_path / "hitl.toml").write_text(SETTINGS)
    assert run("run")[0] == 0
    code, said, _ = run("audit")
    assert code == 0
    assert said.startswith("compared 3 items, 3 annotations, 0 predictions, ")
    assert said.endswith("operations: platform and store agree\n")
    table.write_text("item,annotator,label\n1,ann,yes\n2,ann,yes\n3,bob,no\n4,bob,no\n")
    code, said, _ = run("audit", "--json")
    found = json.loads(said)
    assert code == 1
    assert not found["agrees"]
    assert ("item", "4", "not in the store") in {tuple(one.values()) for one in found["differences"]}
    code, said, _ = run("audit")
    assert code == 1
    assert "`hitl audit --repair` fixes it" in said
    differences = len(found["differences"])
    found = json.loads(run("audit", "--repair", "--json")[1])
    assert (found["agrees"], found["fixed"]) == (True, differences)
    assert "platform and store agree" in run("audit")[1]


def test_half_a_file_is_no_deletion_for_an_audit_and_a_full_pull_either(run: Run, tmp_path: Path) -> None:
    answers = tmp_path / "annotations.csv"
    rows = [f"{n},{who},{'yes' if n % 2 else 'no'}" for n in range(60) for who in ("ann", "bob", "cyd")]
    answers.write_text("\n".join(["item,annotator,label", *rows, ""]))
    assert run("init", "--tables", ".", "--name", "p")[0] == 0
    assert run("run")[0] == 0
    answers.write_text("\n".join(["item,annotator,label", *rows[:50], rows[50][:-1]]))  # cut while it is written
    for command in (["audit", "--repair"], ["pull", "--full"], ["audit", "--repair"]):
        said = " ".join("".join(map(str, run(*command)[1:])).split())
        assert "nothing was deleted" in said, command
        assert "--accept-deletions" in said
    assert json.loads(run("status", "--json")[1])["stored"]["labels"] == 180
    few = "\n".join(["item,annotator,label", *rows[:30], ""])
    answers.write_text(few.replace("label", "said", 1))
    assert run("pull", "--full")[0] == 65, "there is no column of labels"
    answers.write_text(few)
    assert "nothing was deleted" in " ".join("".join(map(str, run("pull")[1:])).split())
    answers.write_text("\n".join(["item,annotator,label", *rows[:50], rows[50][:-1]]))
    assert run("pull", "--full", "--accept-deletions")[0] == 0
    assert json.loads(run("status", "--json")[1])["stored"]["labels"] == 51


def test_audit_finds_results_that_were_changed_or_deleted(run: Run, tmp_path: Path) -> None:
    (tmp_path / "annotations.csv").write_text("item,annotator,label\n1,ann,yes\n2,ann,no\n3,bob,no\n")
    (tmp_path / "hitl.toml").write_text('name = "p"\n[source]\nkind = "tables"\npath = "."\n')
    assert run("run")[0] == 0
    results = {path: path.read_bytes() for path in (tmp_path / "hitl-output").glob("*.csv")}
    assert run("audit")[0] == 0
    changed, deleted = tmp_path / "hitl-output" / "consensus.csv", tmp_path / "hitl-output" / "order.csv"
    changed.write_text("item,label\n1,no\n")
    deleted.unlink()
    code, said, _ = run("audit")
    assert (code, said.count("is gone or was changed")) == (1, 2)
    assert run("audit", "--repair")[0] == 0
    assert {path: path.read_bytes() for path in results} == results
