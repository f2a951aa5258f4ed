"""`hitl combine` over spans of texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hitl.tables.read import read_table
from tests.command_line import Run

SPANS = """\
{"document": "a", "annotator": "ann", "start": 0, "end": 3, "label": "PER"}
{"document": "a", "annotator": "bob", "start": 0, "end": 3, "label": "PER"}
{"document": "a", "annotator": "bob", "start": 8, "end": 11, "label": "LOC"}
{"document": "b", "annotator": "ann", "start": null, "end": null, "label": null}
"""


@pytest.fixture
def spans(tmp_path: Path) -> list[str]:
    (tmp_path / "spans.jsonl").write_text(SPANS)
    (tmp_path / "texts.csv").write_text("document,text\na,Ada met Bob.\nb,Nothing here.\nc,Later.\n")
    return ["combine", "spans.jsonl", "--texts", "texts.csv"]


def test_spans_are_combined_and_written(run: Run, spans: list[str]) -> None:
    code, out, err = run(*spans, "--output", "found.csv", "--annotators-output", "people.csv")
    assert (code, err) == (0, "")
    assert "3 texts, 3 answers by 2 annotators: 3 spans of LOC, PER" in out
    assert "wrote found.csv\nwrote people.csv" in out
    row, doubtful = read_table("found.csv").to_pylist()
    assert (doubtful["label"], doubtful["marked"]) == ("LOC", "1")
    assert float(doubtful["confidence"]) < float(row["confidence"])
    assert (row["document"], row["start"], row["end"], row["label"], row["text"]) == ("a", "0", "3", "PER", "Ada")
    assert (row["marked"], row["answers"]) == ("2", "2")
    assert 0.5 < float(row["confidence"]) < 1
    people = {row["annotator"]: row for row in read_table("people.csv").to_pylist()}
    assert {name: row["labels"] for name, row in people.items()} == {"ann": "2", "bob": "1"}


def test_places_are_shown_as_they_are_and_what_is_missing_as_nothing(
    run: Run, tmp_path: Path, spans: list[str]
) -> None:
    (tmp_path / "hitl.toml").write_text(
        'name = "p"\nstore = "sqlite:///p.db"\n[source]\nkind = "tables"\npath = "data"\n'
    )
    (tmp_path / "data").mkdir()
    rows = (row.replace('"document"', '"item"') for row in SPANS.splitlines())
    (tmp_path / "data" / "annotations.jsonl").write_text("\n".join(rows) + "\n")
    texts = (tmp_path / "texts.csv").read_text().replace("document,", "item,")
    (tmp_path / "data" / "items.csv").write_text(texts)
    assert run("run")[0] == 0
    for words in (spans, ("combine",)):
        out = run(*words)[1]
        assert "nan" not in out
        assert next(part for part in out.splitlines() if "Ada" in part).split()[:3] == ["a", "0", "3"]


def test_json_has_the_spans_if_asked(run: Run, spans: list[str]) -> None:
    code, out, _ = run(*spans, "--json", "--labels", "--method", "vb-ibcc")
    told = json.loads(out)
    assert code == 0
    assert (told["texts"], told["answers"], told["kinds"], told["spans"]) == (3, 3, ["LOC", "PER"], 2)
    assert told["consensus"][0]["text"] == "Ada"


def test_known_spans_and_other_names_of_columns(run: Run, tmp_path: Path, spans: list[str]) -> None:
    (tmp_path / "s.csv").write_text("doc,who,start,end,label\na,ann,0,3,PER\na,bob,8,11,LOC\n")
    (tmp_path / "t.csv").write_text("doc,text\na,Ada met Bob.\n")
    (tmp_path / "truth.csv").write_text("doc,start,end,label\na,8,11,LOC\n")
    flags = ["--texts", "t.csv", "--item", "doc", "--annotator", "who", "--truth", "truth.csv", "--output", "f.csv"]
    assert run("combine", "s.csv", *flags)[0] == 0
    assert [row["label"] for row in read_table("f.csv").to_pylist()] == ["LOC"]


def test_what_spans_do_not_take_is_said(run: Run, tmp_path: Path, spans: list[str]) -> None:
    code, _, err = run(*spans, "--features", "x.csv", "--save", "c.npz")
    assert code == 78
    assert "holds spans, for which --features, --save means nothing" in err
    assert "Read as stretches of time" in run("combine", "spans.jsonl")[1], (
        "spans without texts, and how they were read"
    )
    assert "--texts needs an annotations file" in run("combine", "--texts", "texts.csv")[2]
    (tmp_path / "spans.jsonl").write_text(SPANS.replace('"end": 11', '"end": 99'))
    named = "spans.jsonl, line 3: 8 to 99 is no part of the text"
    code, out, err = run(*spans)
    assert (code, f"1 answer with a span that cannot be read is left out: {named}" in err) == (0, True)
    assert "3 texts, 2 answers by 1 annotator: 1 span of PER" in out
    code, _, err = run(*spans, "--strict")
    assert (code, named in err) == (65, True)


def test_two_spans_of_a_kind_over_one_another_are_told(run: Run, tmp_path: Path, spans: list[str]) -> None:
    more = '{"document": "a", "annotator": "ann", "start": 0, "end": 7, "label": "PER"}\n'
    (tmp_path / "spans.jsonl").write_text(SPANS + more)
    code, _, err = run(*spans)
    assert code == 0
    assert "1 span of an annotator overlapped another of the same label" in err


def test_a_table_of_items_with_times_is_not_spans(run: Run, tmp_path: Path) -> None:
    rows = "\n".join(f"{n},ann,cat,1,2" for n in range(4)).replace("3,ann,cat", "3,ann,dog")
    (tmp_path / "a.csv").write_text(f"item,annotator,label,start,end\n{rows}\n")
    code, _, err = run("combine", "a.csv", "--output", "c.csv")
    assert code == 0
    assert read_table("c.csv").column_names[0] == "item"
    assert "a.csv: the columns start and end are not read: each row is a label of a whole item" in err
    (tmp_path / "b.csv").write_text(f"item,annotator,label,x,y,width,height\n{rows.replace(',1,2', ',1,2,3,4')}\n")
    assert "b.csv: the columns x, y, width and height are not read" in run("combine", "b.csv", "--output", "c.csv")[2]


def test_gold_that_is_no_part_of_its_text_is_refused_and_never_means_that_nothing_is_there(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "hitl.toml").write_text('name = "p"\n[source]\nkind = "tables"\npath = "data"\n')
    (tmp_path / "data").mkdir()
    rows = (row.replace('"document"', '"item"') for row in SPANS.splitlines())
    (tmp_path / "data" / "annotations.jsonl").write_text("\n".join(rows) + "\n")
    (tmp_path / "data" / "items.csv").write_text("item,text\na,Ada met Bob.\nb,Nothing here.\n")
    assert run("run")[0] == 0
    for start, end, why in ((8, 99, "reaches beyond the text, which has 12"), (3, 4, "nothing but white space")):
        (tmp_path / "known.csv").write_text(f"item,start,end,label\na,0,3,PER\na,{start},{end},LOC\n")
        code, _, err = run("gold", "known.csv")
        assert (code, err.startswith("hitl: known.csv: item 'a': 'LOC' from "), why in err) == (65, True, True)
    (tmp_path / "known.csv").write_text("item,start,end,label\na,0,3,PER\na,8,11,LOC\n")
    assert run("gold", "known.csv")[0] == 0
    (tmp_path / "data" / "items.csv").write_text("item,text\na,Ada met.\nb,Nothing here.\n")  # Bob is gone
    assert run("run")[0] == 0
    found = {row["item"]: row for row in read_table("data/hitl-output/consensus.csv").to_pylist()}
    assert (found["a"]["label"], float(found["a"]["confidence"]) < 1) == ("PER", True)


def test_long_texts_and_texts_like_numbers_are_read(run: Run, tmp_path: Path, spans: list[str]) -> None:
    (tmp_path / "texts.csv").write_text(f"document,text\na,Ada met Bob{' and others' * 200}.\nb,1.0\n")
    with (tmp_path / "spans.jsonl").open("a") as file:
        file.write('{"document": "b", "annotator": "bob", "start": 0, "end": 3, "label": "PER"}\n')
    assert run(*spans, "--output", "found.csv")[::2] == (0, "")
    assert {"Ada", "1.0"} <= {row["text"] for row in read_table("found.csv").to_pylist()}
