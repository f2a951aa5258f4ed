"""`hitl models`: what it shows, writes and refuses, for files and for a project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hitl.active.guarantees.skip_list import make_skip_list
from hitl.evidence import Evidence
from hitl.models import PLEM, DefaultCombiner
from hitl.models.analysis.model_profile import ModelProfiler
from hitl.tables.read import read_table
from tests.command_line import Run

KINDS = ("cat", "cow", "dog")
FLAGS = ("models", "annotations.csv", "--probabilities", "net=net.csv")


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """300 items, three people, a model that does not know cows, the truth of 120."""
    rng = np.random.default_rng(5)
    said, told = ["item,annotator,label"], ["item,p_cat,p_cow,p_dog"]
    truth = ["item,label"]
    for n in range(300):
        z = int(rng.integers(3))
        for who in ("ann", "bob", "cyd"):
            if rng.random() < 0.7:
                said.append(f"i{n},{who},{KINDS[z] if rng.random() < 0.85 else KINDS[int(rng.integers(3))]}")
        p = rng.dirichlet(np.ones(3) + 8 * np.eye(3)[z] * (z != 1))
        told.append(f"i{n},{p[0]:.6f},{p[1]:.6f},{1 - round(p[0], 6) - round(p[1], 6):.6f}")
        if n < 120:
            truth.append(f"i{n},{KINDS[z]}")
    for name, lines in (("annotations", said), ("net", told), ("truth", truth)):
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def evidence_of(tables: Path, *, truth: bool = False) -> Evidence:
    files = {name: read_table(tables / f"{name}.csv", ["item", "label"]) for name in ("annotations", "net", "truth")}
    return Evidence.from_tables(files["annotations"], {"net": files["net"]}, files["truth"] if truth else None)


def test_the_table_says_who_is_right_where(run: Run, tables: Path) -> None:
    assert "bits" not in run(*FLAGS)[1]
    code, out, err = run(*FLAGS, "--details")
    assert (code, err) == (0, "")
    assert "Does the model help? Can't tell yet: 10 or more answered gold items" in out
    assert "expected by the consensus, which believes itself" in out
    evidence = evidence_of(tables)
    account = ModelProfiler().fit(evidence, DefaultCombiner().fit(evidence)).expected
    lines = [line.strip() for line in out.splitlines()]
    (overall,) = [line for line in lines if line.startswith("all items")]
    (told,) = account.overall.to_dict("records")
    assert f"{told['model'] * 100:.1f} % ({told['model_low'] * 100:.1f}–{told['model_high'] * 100:.1f})" in overall
    added = (
        f"{told['people_add'] * 100:+.1f} ({told['people_add_low'] * 100:+.1f} to {told['people_add_high'] * 100:+.1f})"
    )
    assert added in overall
    classes = [line.split()[1] for line in lines if line.startswith("class ")]
    assert classes[0] == "cow"  # which the model does not know
    assert f"at least {account.bound.bound * 100:.1f} %" in out
    assert f"calibrated {account.error['calibrated'] * 100:.1f} %" in out
    skips = make_skip_list(evidence, DefaultCombiner().fit(evidence))
    assert skips.statement.startswith("Can't tell yet: to be sure that at least 98 % of all 300 labels are right (95 %")
    assert f"Which items need no annotator? {skips.statement}" in out
    (row,) = [line for line in lines if line.startswith("annotators, net")]
    assert row.split()[2:5] == [
        str(account.items), *(f"{account.dependence[name][0]:.3f}" for name in ("bits", "chance"))
    ]  # fmt: skip
    assert "annotators, annotators (another label)" in out


def test_known_truth_measures(run: Run, tables: Path) -> None:
    code, out, _ = run(*FLAGS, "--truth", "truth.csv", "--rows", "2")
    assert code == 0
    assert "measured on gold items, each judged by fits that did not see it" in out
    assert "the 2 of 3 classes where annotators add most" in out
    assert sum(line.strip().startswith("class ") for line in out.splitlines()) == 2


@pytest.mark.filterwarnings("ignore::hitl.errors.UnmatchedNames")
def test_json_has_everything_and_only_json_values(run: Run, tables: Path) -> None:
    def no_constants(value: str) -> Any:
        raise AssertionError(value)

    code, out, _ = run(*FLAGS, "--truth", "truth.csv", "--method", "pl-em", "--json")
    assert code == 0
    found = json.loads(out, parse_constant=no_constants)
    evidence = evidence_of(tables, truth=True)
    consensus = PLEM().fit(evidence)
    told = ModelProfiler().fit(evidence, consensus)
    assert found["models"] == ["net"]
    assert found["temperatures"] == pytest.approx(dict(consensus.temperatures))
    assert (found["items"], found["labeled"], found["spoken"]) == (told.items, told.labeled, told.spoken)
    for name, account in (("expected", told.expected), ("measured", told.measured)):
        assert account is not None
        assert found[name]["items"] == account.items
        assert found[name]["bound"]["bound"] == pytest.approx(account.bound.bound)
        for table in ("overall", "classes", "confidence", "calibration", "deferral", "dependence"):
            frame = getattr(account, table)
            assert len(found[name][table]) == len(frame)
            for row, expected in zip(found[name][table], frame.to_dict("records"), strict=True):
                for key, value in expected.items():
                    missing = isinstance(value, float) and np.isnan(value)
                    assert row[key] == (None if missing else pytest.approx(value) if key != "class" else value)


@pytest.mark.filterwarnings("ignore::hitl.errors.UnmatchedNames")
def test_gold_items_say_which_items_need_no_annotator(run: Run, tables: Path) -> None:
    flags = (*FLAGS, "--truth", "truth.csv")
    code, out, _ = run(*flags, "--error", "10%", "--skip-list", "skip.csv")
    assert code == 0
    evidence = evidence_of(tables, truth=True)
    skips = make_skip_list(evidence, DefaultCombiner().fit(evidence), error=0.1)
    assert 0 < skips.items < 300
    assert f"Which items need no annotator? {skips.items} of 300 items ({100 * skips.share:.1f} %)." in out
    assert "At most 30 of the models' labels on them are wrong (95 % confidence)." in out
    assert "At least 90 % of all 300 labels are right if annotators label the other items correctly." in out
    assert "if the 120 gold items were drawn at random from all items, if their number was decided before" in out
    assert "wrote skip.csv" in out
    rows = read_table(tables / "skip.csv").to_pylist()
    assert [row["item"] for row in rows] == skips.labels.item.tolist()
    assert [row["label"] for row in rows] == skips.labels.label.tolist()
    found = json.loads(run(*flags, "--error", "0.1", "--json")[1])["skips"]
    assert found == skips.figures()
    assert json.loads(run(*flags, "--json")[1])["skips"]["error"] == 0.02


def test_everything_is_written_as_one_table(run: Run, tables: Path) -> None:
    for ending in ("csv", "parquet"):
        code, out, _ = run(*FLAGS, "--output", f"models.{ending}")
        assert code == 0
        assert f"wrote models.{ending}" in out
        rows = read_table(f"models.{ending}").to_pylist()
        assert {row["table"] for row in rows} == {
            "overall", "classes", "confidence", "calibration", "deferral", "dependence"
        }  # fmt: skip
    evidence = evidence_of(tables)
    told = ModelProfiler().fit(evidence, DefaultCombiner().fit(evidence)).expected
    (row,) = [row for row in rows if (row["table"], row["row"], row["figure"]) == ("classes", "cow", "both")]
    expected = told.classes.set_index("class").loc["cow"]
    assert (row["value"], row["low"], row["high"]) == pytest.approx(
        (expected["both"], expected["both_low"], expected["both_high"])
    )


def test_a_saved_consensus_judges(run: Run, tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ["combine", "annotations.csv", "--probabilities", "net=net.csv", "--save", "c.npz", "--output", "c.csv"]
    assert run(*flags)[0] == 0
    by_fit = json.loads(run(*FLAGS, "--json")[1])
    for method in (PLEM, DefaultCombiner):  # nobody needs fitting again, but people alone
        fit = method.fit
        monkeypatch.setattr(
            method, "fit", lambda self, evidence, fit=fit: fit(self, evidence) if not evidence.probabilities else None
        )
    assert json.loads(run(*FLAGS, "--consensus", "c.npz", "--json")[1]) == by_fit


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["models", "annotations.csv"], 78, "--probabilities is needed"),
        pytest.param(  # compiles a sampler
            [*FLAGS, "--method", "ebcc"], 65, "what 'ebcc' learns cannot be applied", marks=pytest.mark.journey
        ),
        ([*FLAGS, "--method", "vb-ibcc"], 65, "'vb-ibcc' does not use models"),
        ([*FLAGS, "--method", "pl"], 65, "ground truth of some items"),
        ([*FLAGS, "--method", "pl-em", "--consensus", "c.npz"], 78, "exclude each other"),
        (["models", "--truth", "truth.csv"], 78, "--truth needs an annotations file"),
        ([*FLAGS, "--error", "0"], 78, "--error 0: expected a share above 0 and below 1, as 2%"),
        ([*FLAGS, "--skip-list", "net.csv"], 65, "net.csv is named twice"),
    ],
)
def test_what_cannot_be_compared_is_refused(run: Run, tables: Path, flags: list[str], code: int, words: str) -> None:
    found, out, err = run(*flags)
    assert (found, out) == (code, "")
    assert words in err


def test_a_project_with_a_model(run: Run, tables: Path) -> None:
    (tables / "net.csv").rename(tables / "probabilities_net.csv")
    assert run("init", "--tables", ".", "--name", "pets")[0] == 0
    assert run("run")[0] == 0
    code, out, err = run("models")
    assert (code, err) == (0, "")
    assert ", the last run\n" in out
    assert "annotators, net" in run("models", "--details")[1]
    found = json.loads(run("models", "--json", "--output", "models.csv")[1])
    (name,) = found["questions"]
    assert found["questions"][name]["expected"]["items"] > 100
    assert Path(found["written"][name]).exists()


def test_a_project_without_a_model(run: Run, tables: Path) -> None:
    (tables / "net.csv").unlink()
    assert run("init", "--tables", ".", "--name", "pets")[0] == 0
    assert run("run")[0] == 0
    code, _, err = run("models")
    assert code == 65
    assert "no model's probabilities" in err


@pytest.mark.filterwarnings("ignore::hitl.errors.UnmatchedNames")
def test_the_promise_of_the_list_can_be_replayed(run: Run, tables: Path) -> None:
    flags = (*FLAGS, "--truth", "truth.csv", "--error", "10%")
    code, out, err = run(*flags, "--replay", "60", "--json")
    assert code == 0, err
    found = json.loads(out)["replayed"]
    least, middle, most = found["items"]
    assert (found["labels"], found["gold"], found["runs"]) == (120, 60, 100)
    assert 0 <= least <= middle <= most <= 120
    assert found["false"] <= 11  # 5 % may be, and two standard errors more
    assert f"drawn 100 times: {middle} items need no annotator" in " ".join(run(*flags, "--replay", "60")[1].split())
    code, _, err = run(*flags, "--replay", "120")
    assert code == 78
    assert "120 gold items: expected fewer than the 120 predicted items of known truth" in err
