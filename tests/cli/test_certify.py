"""`hitl certify` and `hitl verify` as a team uses them: tables to fill in, a certificate, and what it is worth."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hitl.certificates.certificate import Certificate
from tests.command_line import Run

ITEMS = 400


@pytest.fixture
def truth(tmp_path: Path) -> dict[str, str]:
    """labels.csv of 400 photos, five of them wrong and doubted; returns the right labels."""
    names = [f"photo{n}" for n in range(ITEMS)]
    right = ["cat" if n % 3 else "dog" for n in range(ITEMS)]
    wrong = np.arange(ITEMS) % 80 == 7
    label = [("dog" if one == "cat" else "cat") if bad else one for one, bad in zip(right, wrong, strict=True)]
    confidence = np.where(np.arange(ITEMS) % 16 == 7, 0.8, 0.99)
    table = pd.DataFrame({"item": names, "label": label, "confidence": confidence, "text": "a photo", "p_cat": 0.5})
    table.to_csv(tmp_path / "labels.csv", index=False)
    return dict(zip(names, right, strict=True))


Answer = Callable[[str], int]


def filled(truth: dict[str, str], name: str = "audit.csv") -> int:
    """Fill in the empty answers of a table, as an auditor who is always right; return how many there were."""
    table = pd.read_csv(name, dtype=str)
    empty = table["answer"].isna()
    table.loc[empty, "answer"] = table.loc[empty, "item"].map(truth)
    table.to_csv(name, index=False)
    return int(empty.sum())


def repeated(run: Run, truth: dict[str, str], *options: str) -> tuple[int, str]:
    """Call `hitl certify` and answer until it is decided; return its exit code and output."""
    for _ in range(40):
        code, out, err = run("certify", "labels.csv", "--batch", "60", *options)
        assert err == ""
        if code != 3:
            return code, out
        for name in ("audit.csv", "second.csv"):
            if Path(name).exists():
                filled(truth, name)
    raise AssertionError("the audit does not end")


def test_an_audit_is_drawn_answered_and_proven(run: Run, truth: dict[str, str]) -> None:
    code, out, _ = run("certify", "labels.csv", "--error", "2%", "--by", "ann", "--seed", "dice 4 2 6")
    assert code == 3
    assert "not proven after 0 audited labels" in out
    assert "next: fill in the column answer of 25 items in audit.csv" in out
    table = pd.read_csv("audit.csv")
    assert list(table.columns) == ["item", "answer", "text"]  # auditors do not see labels or beliefs
    code, out = repeated(run, truth, "-o", "mended.csv")
    assert code == 0
    assert "no more than the 2 % promised (95 % confidence)" in out
    assert "auditors: ann" in out
    document = json.loads(Path("certificate.json").read_text())
    (finding,) = document["findings"]
    assert finding["state"] == "proven"
    assert finding["audited"] < ITEMS
    code, out, _ = run("verify", "certificate.json", "mended.csv")
    assert (code, "all 400 labels are as certified" in out) == (0, True)
    mended = pd.read_csv("mended.csv").set_index("item")["label"]
    corrected = [
        item for item, label in mended.items() if label != pd.read_csv("labels.csv").set_index("item")["label"][item]
    ]
    assert len(corrected) == finding["wrong"] > 0
    assert all(mended[item] == truth[item] for item in corrected)


def test_verify_names_the_labels_that_changed(run: Run, truth: dict[str, str]) -> None:
    repeated(run, truth, "--error", "3%", "-o", "mended.csv")
    table = pd.read_csv("mended.csv")
    table.loc[table["item"] == "photo17", "label"] = "horse"
    table = table[table["item"] != "photo30"]
    pd.concat([table, pd.DataFrame({"item": ["new"], "label": ["cat"]})]).to_csv("later.csv", index=False)
    code, out, _ = run("verify", "certificate.json", "later.csv")
    assert code == 1
    assert "photo17: cat is now horse" in out
    assert "photo30: certified, and missing now" in out
    assert "new: not in the certificate" in out
    assert "3 labels not covered by the certificate; all others are as certified" in out
    code, out, _ = run("verify", "certificate.json", "labels.csv")
    assert (code, "found wrong and not corrected" in out) == (1, True)


def test_a_forged_certificate_is_refused(run: Run, truth: dict[str, str]) -> None:
    repeated(run, truth, "--error", "3%", "--seed", "s")
    forgeries: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
        (lambda own: own["answers"][0].update(first="horse"), "changed"),
        (lambda own: own["terms"].update(error=0.001), "batch"),
        (lambda own: own["labels"]["labels"].__setitem__(3, "horse"), "items of batch 1"),
        (lambda own: own["findings"][0].update(at_most=0) or own.update(statement=["proven"]), "findings"),
        (lambda own: own["batches"][0]["chances"].__setitem__(0, 0.9), "chances of batch 1"),
        (lambda own: own["answers"][0].update(item="photo1"), "items of batch 1"),
        (lambda own: own["findings"][0].update(at_most=0), "findings are not what"),
        (lambda own: own["answers"].append({"item": "photo1", "first": "cat"}), "answers for"),
        (lambda own: own["batches"][0]["chances"].__setitem__(0, "NaN"), "not a certificate: batches.0.chances.0"),
        (lambda own: own.update(format=2), "not a certificate: format"),
        (lambda own: own.pop("labels"), "not a certificate: labels: Field required"),
    ]
    for what, message in forgeries:
        document = json.loads(Path("certificate.json").read_text())
        what(document)
        Path("forged.json").write_text(json.dumps(document))
        code, _, err = run("verify", "forged.json", "labels.csv")
        assert code == 65
        assert err.startswith("hitl: forged.json: ")
        assert message in err


def test_a_second_auditor_sees_what_the_first_calls_wrong_and_a_share_of_the_rest(
    run: Run, truth: dict[str, str]
) -> None:
    second = ("--second-answers", "second.csv")
    options = ("--error", "3%", "--recheck", "20%", "--batch", "60", "--by", "ann", "--second", "bob")
    run("certify", "labels.csv", *options, *second)
    table = pd.read_csv("audit.csv", dtype=str)
    label = pd.read_csv("labels.csv", dtype=str).set_index("item")["label"]
    table["answer"] = table["item"].map(label)
    alarms = [item for item in table["item"] if label[item] == truth[item]][:6]
    table.loc[table["item"].isin(alarms), "answer"] = "horse"
    table.to_csv("audit.csv", index=False)
    code, out, err = run("certify", "labels.csv", *second)
    assert (code, "horse" in err) == (3, True)
    asked = pd.read_csv("second.csv", dtype=str)
    assert set(alarms) <= set(asked["item"])
    assert 8 <= len(asked) <= 30
    filled(truth, "second.csv")
    code, out, _ = run("certify", "labels.csv", *second)
    assert "after 60 audited labels" in out
    assert "auditors: ann, bob" in out
    assert "labels that the first called right and a second checked" in out
    found = json.loads(Path("certificate.json").read_text())["findings"][0]["wrong"]
    assert found == sum(truth[item] != label[item] for item in asked["item"])  # not the false alarms
    code, _, err = run("certify", "labels.csv")
    assert (code, "expected --second-answers" in err) == (78, True)


def test_classes_have_claims_of_their_own(run: Run, truth: dict[str, str]) -> None:
    code, out = repeated(run, truth, "--error", "10%", "--per", "label")
    assert code == 0
    assert "label cat: proven" in out
    assert "label dog: proven" in out


def test_labels_as_they_are_can_be_refuted(run: Run, truth: dict[str, str]) -> None:
    code, out = repeated(run, truth, "--error", "0.5%", "--as-is")
    assert (code, "refuted after" in out) == (1, True)


def test_an_audit_goes_on_as_it_began_and_within_its_budget(run: Run, truth: dict[str, str]) -> None:
    run("certify", "labels.csv", "--error", "1%", "--budget", "30")
    filled(truth)
    run("certify", "labels.csv", "--budget", "30")
    assert filled(truth) == 5
    code, out, _ = run("certify", "labels.csv", "--budget", "30", "--json")
    data = json.loads(out)
    assert (code, data["findings"][0]["audited"], data["waiting"]["first"]) == (3, 30, [])
    table = pd.read_csv("audit.csv", dtype=str)
    table["answer"] = "?"  # what was counted stays
    table.to_csv("audit.csv", index=False)
    assert json.loads(run("certify", "labels.csv", "--budget", "30", "--json")[1])["findings"] == data["findings"]
    code, _, err = run("certify", "labels.csv", "--error", "2%")
    assert code == 78
    assert "--error 0.02: the audit in certificate.json began with 0.01" in err
    first, *rows = Path("labels.csv").read_text().splitlines(keepends=True)
    Path("labels.csv").write_text("".join([first, *reversed(rows)]))
    assert "the labels have changed" not in run("certify", "labels.csv")[2]
    text = Path("labels.csv").read_text().replace("photo5,cat", "photo5,dog")
    Path("labels.csv").write_text(text)
    _, _, err = run("certify", "labels.csv")
    assert "the labels have changed since" in err


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("Cat", "the answer 'Cat' is almost the label 'cat'; write it the same"),
        (None, "item 'nowhere' was not drawn"),
    ],
)
def test_answers_that_cannot_be_meant_are_refused(
    run: Run, truth: dict[str, str], answer: str | None, message: str
) -> None:
    run("certify", "labels.csv", "--error", "1%")
    table = pd.read_csv("audit.csv", dtype=str)
    table.loc[0, "answer"] = answer or "cat"
    if answer is None:
        table.loc[1, "item"] = "nowhere"
    table.to_csv("audit.csv", index=False)
    before = Path("certificate.json").read_bytes()
    code, _, err = run("certify", "labels.csv")
    assert (code, message in err) == (65, True)
    assert Path("certificate.json").read_bytes() == before


def test_what_auditors_cannot_say_counts_as_wrong_and_loses_its_label(run: Run, truth: dict[str, str]) -> None:
    run("certify", "labels.csv", "--error", "5%")
    table = pd.read_csv("audit.csv", dtype=str)
    table["answer"] = table["item"].map(truth)
    table.loc[0, "answer"] = "?"
    table.to_csv("audit.csv", index=False)
    run("certify", "labels.csv", "-o", "mended.csv")
    mended = pd.read_csv("mended.csv").set_index("item")["label"]
    assert pd.isna(mended[table.loc[0, "item"]])
    assert mended.isna().sum() == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["labels.csv"], "expected what to promise, as --error 1%"),
        (["labels.csv", "--error", "1%", "--per", "colour"], "no column 'colour'"),
        (["labels.csv", "--error", "1%", "--recheck", "5%"], "--recheck: expected a second auditor"),
        (["labels.csv", "--error", "lots"], "expected a share, as 1% or 0.01"),
        (["empty.csv", "--error", "1%"], "has no label"),
        (["twice.csv", "--error", "1%"], "twice.csv, line 3: item 'a' appears twice"),
        (["nameless.csv", "--error", "1%"], "nameless.csv, line 3 has no item"),
        (["sure.csv", "--error", "1%"], "confidence must be a number between 0 and 1"),
    ],
)
def test_what_cannot_be_certified_is_said(run: Run, truth: dict[str, str], arguments: list[str], message: str) -> None:
    Path("empty.csv").write_text("item,label\na,x\nb,\n")
    Path("nameless.csv").write_text("item,label\na,x\n,x\n")
    Path("twice.csv").write_text("item,label\na,x\na,x\n")
    Path("sure.csv").write_text("item,label,confidence\na,x,1.5\n")
    code, _, err = run("certify", *arguments)
    assert code in (2, 65, 78)
    assert message in " ".join(err.replace("│", "").split())
    assert not Path("certificate.json").exists()


def test_audits_are_replayed_with_known_truth(run: Run, truth: dict[str, str]) -> None:
    pd.DataFrame({"item": truth.keys(), "label": truth.values()}).to_csv("truth.csv", index=False)
    code, out, err = run("certify", "labels.csv", "--error", "4%", "--replay", "truth.csv", "--json")
    data = json.loads(out)
    assert (code, err) == (0, "")
    assert (data["labels"], data["true_error"], data["runs"]) == (ITEMS, 5 / ITEMS, 100)
    assert data["proven"] > 90
    assert data["audits"][1] < ITEMS / 2
    _, out, _ = run("certify", "labels.csv", "--error", "1%", "--as-is", "--replay", "truth.csv", "--budget", "150")
    assert "1.25 % of 400 labels with known truth are wrong; promise: at most 1 %" in out
    false = int(out.splitlines()[2].split(" of them")[0])
    assert false <= 8
    _, out, _ = run("certify", "labels.csv", "--error", "1%", "--as-is", "--confidence", "40%", "--replay", "truth.csv")
    assert 5 <= int(out.splitlines()[2].split(" of them")[0]) <= 75
    assert not Path("certificate.json").exists()
    code, _, err = run("certify", "labels.csv", "--error", "4%", "--replay", "labels.csv", "--budget", "5")
    assert code == 0
    Path("other.csv").write_text("item,label\nx,cat\n")
    code, _, err = run("certify", "labels.csv", "--error", "4%", "--replay", "other.csv")
    assert (code, "none of the labels is of an item whose truth is known" in err) == (65, True)


def test_a_label_may_end_in_a_space_and_a_corrected_table_with_a_gap_is_verified(run: Run) -> None:
    rows = [f"item{n},{'cat ' if n % 2 else 'dog'}\n" for n in range(60)]
    Path("labels.csv").write_text("item,label\n" + "".join(rows))
    run("certify", "labels.csv", "--error", "20%")
    label = pd.read_csv("labels.csv").set_index("item")["label"]
    table = pd.read_csv("audit.csv", dtype=str)
    table["answer"] = ["?", *table["item"].map(label)[1:]]
    table.to_csv("audit.csv", index=False)
    code, out, err = run("certify", "labels.csv", "-o", "mended.csv")
    assert (code, err, "1 of them wrong" in out) == (0, "", True)
    code, out, err = run("verify", "certificate.json", "mended.csv")
    assert (code, err, "all 59 labels are as certified" in out) == (0, "", True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--error", "100%"], "--error 1: input should be less than 1"),
        (["--error", "0%"], "--error 0: input should be greater than 0"),
        (["--error", "5%", "--confidence", "1"], "--confidence 1: input should be less than 1"),
        (["--error", "5%", "--confidence", "0"], "--confidence 0: input should be greater than 0"),
        (["--error", "5%", "--missed", "100%"], "--missed 1: input should be less than 1"),
        (["--error", "5%", "--output", "labels.csv"], "is named twice"),
        (["--error", "5%", "--output", "audit.csv"], "is named twice"),
        (["--error", "5%", "--certificate", "audit.csv"], "is named twice"),
        (["--error", "5%", "--second-answers", "audit.csv"], "is named twice"),
        (["--error", "5%", "--answers", "audit.txt"], "expected a file name that ends in"),
        (["--error", "5%", "--second", "bob"], "expected --second-answers too"),
        (["--error", "5%", "--question", "kind"], "--question: only in a project"),
        (["--error", "5%", "--replay", "labels.csv", "--output", "new.csv"], "--output: not with --replay"),
    ],
)
def test_options_that_cannot_be_followed_write_nothing(
    run: Run, truth: dict[str, str], options: list[str], message: str
) -> None:
    before = Path("labels.csv").read_bytes()
    code, _, err = run("certify", "labels.csv", *options)
    assert (code in (65, 78), message in err) == (True, True)
    assert [path.name for path in Path().iterdir()] == ["labels.csv"]
    assert Path("labels.csv").read_bytes() == before


def test_of_two_first_calls_at_once_one_begins_the_audit(
    run: Run, truth: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = Certificate.with_batch

    def slowly(document: Certificate, count: int, now: str) -> Certificate:
        monkeypatch.setattr(Certificate, "with_batch", draw)
        assert run("certify", "labels.csv", "--error", "5%", "--by", "bob")[0] == 3
        return draw(document, count, now)

    monkeypatch.setattr(Certificate, "with_batch", slowly)
    code, _, err = run("certify", "labels.csv", "--error", "1%", "--by", "ann")
    assert (code, "certificate.json was written meanwhile by another `hitl certify`" in err) == (75, True)
    begun = json.loads(Path("certificate.json").read_text())
    assert begun["auditors"][0] == "bob"
    assert set(pd.read_csv("audit.csv", dtype=str)["item"]) == {one["item"] for one in begun["answers"]}


def test_all_who_gave_answers_are_named(run: Run, truth: dict[str, str]) -> None:
    run("certify", "labels.csv", "--error", "1%", "--by", "ann")
    assert "auditors: bob\n" in run("certify", "labels.csv", "--by", "bob")[1]  # ann has answered nothing
    for by in ("bob", "", "cyd", "bob"):
        filled(truth)
        _, out, _ = run("certify", "labels.csv", *(["--by", by] if by else []))
    assert "auditors: bob, cyd\n" in out


def test_a_judge_is_no_auditor_and_no_annotator(run: Run, tmp_path: Path) -> None:
    """What language models say proves nothing, and they have no accuracy as a person that nobody measured."""
    rows = [f"i{n},{who},{'ab'[(n + k) % 2]}" for n in range(40) for k, who in enumerate(("ann", "gpt"))]
    (tmp_path / "annotations.csv").write_text("\n".join(["item,annotator,label", *rows]))
    (tmp_path / "hitl.toml").write_text(
        'name = "p"\nsource = {kind = "tables", path = "."}\ncrew = {annotators = ["ann"], judges = ["gpt"]}'
    )
    assert run("run")[0] == 0
    code, _, err = run("certify", "--error", "20%", "--by", "gpt")
    assert (code, "no annotator 'gpt'; expected one of ann, or" in err) == (78, True)
    assert "gpt" not in run("annotators")[1]
    assert "40 labels of 1 annotator " in run("judge", "--pass", "a")[1]
