"""Probability files: the same rows from every form, and a clear word about what is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hitl.connectors.tables import Tables
from hitl.errors import BadTable
from hitl.evidence import Evidence
from hitl.tables.matrices import distributions, read_probabilities
from hitl.tables.write import write_table
from tests.command_line import Run
from tests.datasets import dataset, feather
from tests.tables import rows

ITEMS = ["a", "b", "c"]
CLASSES = ["cat", "dog"]
P = np.array([[0.9, 0.1], [0.25, 0.75], [np.nan, np.nan]])
LOGITS = np.log(P) + 3.0
EXPECTED = {"item": ITEMS, "p_cat": [0.9, 0.25, None], "p_dog": [0.1, 0.75, None]}
HUGGING = {
    b"huggingface": json.dumps(
        {
            "info": {
                "features": {
                    "item": {"dtype": "string", "_type": "Value"},
                    "label": {"names": CLASSES, "_type": "ClassLabel"},
                    "logits": {"feature": {"dtype": "float32", "_type": "Value"}, "_type": "List"},
                }
            }
        }
    ).encode()
}


def close(table: pa.Table, expected: dict[str, list[Any]] = EXPECTED) -> None:
    assert table.column_names == list(expected)
    for name, values in expected.items():
        found = table.column(name).to_pylist()
        assert found == (values if name == "item" else [p if p is None else pytest.approx(p) for p in values])


def listed(values: np.ndarray[Any, Any]) -> list[list[float] | None]:
    return [None if np.isnan(row).all() else row.tolist() for row in values]


def of_lists(name: str, values: np.ndarray[Any, Any], metadata: dict[bytes, bytes] | None = None) -> pa.Table:
    table = pa.table({"item": ITEMS, "label": [0, 1, 0], name: listed(values)})
    return table.replace_schema_metadata(metadata)


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet", "csv.gz"])
def test_columns_of_probabilities_stay_as_they_are(tmp_path: Path, ending: str) -> None:
    write_table(tmp_path / f"p.{ending}", pa.table(EXPECTED))
    table = read_probabilities(tmp_path / f"p.{ending}")
    assert [None if p is None else float(p) for p in table.column("p_cat").to_pylist()] == EXPECTED["p_cat"]


@pytest.mark.parametrize(("name", "values"), [("probabilities", P), ("logits", LOGITS)])
def test_arrays_with_names(tmp_path: Path, name: str, values: np.ndarray[Any, Any]) -> None:
    np.savez(tmp_path / "p.npz", items=np.array(ITEMS), classes=np.array(CLASSES), **{name: values})
    close(read_probabilities(tmp_path / "p.npz"))
    # Its own names win over those that are told.
    close(read_probabilities(tmp_path / "p.npz", items=["x"], classes=["y"]))


def test_numbers_as_names_are_text_without_a_point(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", items=np.array([7.0, 8.0]), classes=np.array([0.0, 1.0]), probabilities=P[:2])
    table = read_probabilities(tmp_path / "p.npz")
    assert table.column_names == ["item", "p_0", "p_1"]
    assert table.column("item").to_pylist() == ["7", "8"]


@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_a_bare_array_is_told_its_names(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"p.{ending}"
    np.save(path, P) if ending == "npy" else np.savez(path, probabilities=P)
    close(read_probabilities(path, items=ITEMS, classes=CLASSES))
    for told, message in (
        ({"classes": CLASSES}, "has no items; name a table with --items"),
        ({"items": ITEMS}, "has no classes; name them with --classes"),
        ({"items": ITEMS[:2], "classes": CLASSES}, r"3 rows but 2 items \(those given\)"),
        ({"items": ITEMS, "classes": ["x", "y", "z"]}, r"2 columns but 3 classes"),
        ({"items": ["a", "b", "a"], "classes": CLASSES}, "items name 'a' twice"),
    ):
        with pytest.raises(BadTable, match=message):
            read_probabilities(path, **told)  # type: ignore[arg-type]


@pytest.mark.parametrize("ending", ["jsonl", "parquet", "arrow", "folder"])
@pytest.mark.parametrize(("name", "values"), [("probabilities", P), ("probs", P), ("logits", LOGITS)])
def test_lists_of_a_dataset(tmp_path: Path, ending: str, name: str, values: np.ndarray[Any, Any]) -> None:
    table = of_lists(name, values, None if ending == "jsonl" else HUGGING)
    if ending == "folder":
        path = dataset(tmp_path / "data", table.slice(0, 1), table.slice(1))
    elif ending == "arrow":
        path = feather(tmp_path / "p.arrow", table)
    else:
        path = tmp_path / f"p.{ending}"
        write_table(path, table)
    if ending == "jsonl":  # no schema that could name the classes
        with pytest.raises(BadTable, match="has no classes"):
            read_probabilities(path)
    close(read_probabilities(path, classes=CLASSES if ending == "jsonl" else None))


def test_a_dataset_without_items_has_those_told(tmp_path: Path) -> None:
    table = of_lists("logits", LOGITS, HUGGING).drop_columns(["item"])
    path = dataset(tmp_path / "data", table)
    with pytest.raises(BadTable, match="has no items"):
        read_probabilities(path)
    close(read_probabilities(path, items=ITEMS))


def test_a_label_of_another_size_is_an_error_and_of_several_the_label(tmp_path: Path) -> None:
    def hugging(**sizes: list[str]) -> dict[bytes, bytes]:
        features = {name: {"names": names, "_type": "ClassLabel"} for name, names in sizes.items()}
        return {b"huggingface": json.dumps({"info": {"features": features}}).encode()}

    path = tmp_path / "p.parquet"
    write_table(path, of_lists("probs", P, hugging(label=["x", "y", "z"])))
    with pytest.raises(BadTable, match="2 numbers a row, but ClassLabel 'label' of 3"):
        read_probabilities(path)
    write_table(path, of_lists("probs", P, hugging(coarse=["u", "v"], label=CLASSES, fine=["x", "y", "z"])))
    close(read_probabilities(path))
    write_table(path, of_lists("probs", P, hugging(coarse=["u", "v"], other=CLASSES)))
    with pytest.raises(BadTable, match="several ClassLabel columns"):
        read_probabilities(path)


def test_the_real_library_writes_what_we_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", exc_type=ImportError)
    features = datasets.Features(
        {
            "item": datasets.Value("string"),
            "label": datasets.ClassLabel(names=CLASSES),
            "logits": datasets.Sequence(datasets.Value("float64")),
        }
    )
    made = datasets.Dataset.from_dict({"item": ITEMS, "label": [0, 1, 0], "logits": listed(LOGITS)}, features=features)
    made.save_to_disk(str(tmp_path / "data"))
    made.to_parquet(str(tmp_path / "p.parquet"))
    close(read_probabilities(tmp_path / "data"))
    close(read_probabilities(tmp_path / "p.parquet"))
    made.select([2, 0]).save_to_disk(str(tmp_path / "some"))
    assert read_probabilities(tmp_path / "some").column("item").to_pylist() == ["c", "a"]


def broken(row: list[float]) -> np.ndarray[Any, Any]:
    return np.array([[0.9, 0.1], row, [np.nan, np.nan]])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"probabilities": broken([0.5, np.nan])}, r"row 1 \(item 'b'\) is not finite"),
        ({"probabilities": broken([0.5, 0.6])}, r"row 1 \(item 'b'\) sums to 1\.1; expected 1; are these logits"),
        ({"probabilities": broken([-0.5, 1.5])}, r"row 1 \(item 'b'\) has a negative probability"),
        ({"logits": broken([np.inf, 0.0])}, r"row 1 \(item 'b'\) is not finite"),
        ({"probabilities": P[:, 0]}, r"shape \(3,\)"),
        ({"probabilities": np.array([["x", "y"]] * 3)}, "expected numbers"),
        ({"probabilities": P, "logits": P}, "has probabilities and logits; expected one of them"),
        ({"p": P}, "no column p_<class>, and none of probabilities, probs, logits; found p, items, classes"),
        ({"probabilities": P, "items": np.array(["a", "b"])}, r"3 rows but 2 items \(its own\)"),
        ({"probabilities": P, "items": np.array(ITEMS, dtype=object)}, "holds Python objects"),
    ],
)
def test_arrays_that_are_none(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "p.npz", **{**arrays, "items": arrays.get("items", np.array(ITEMS)), "classes": CLASSES})
    with pytest.raises(BadTable, match=message):
        read_probabilities(tmp_path / "p.npz")


@pytest.mark.parametrize(("name", "content"), [("p.npz", None), ("p.npz", b"x"), ("p.npy", b"x"), ("p.npz", b"PK")])
def test_files_that_are_no_arrays(tmp_path: Path, name: str, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadTable, match=r"no such file|cannot be read|Python objects"):
        read_probabilities(tmp_path / name)


def test_softmax_is_stable_and_keeps_silence() -> None:
    read = distributions(np.array([[1000.0, 1000.0 - np.log(3)], [np.nan, np.nan]]), True, "p", "ab")
    np.testing.assert_allclose(read, [[0.75, 0.25], [np.nan, np.nan]], rtol=1e-12)


# -- where they are read ---------------------------------------------------------------------------------------


def test_evidence_takes_what_is_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", items=np.array(ITEMS), classes=np.array(CLASSES), logits=LOGITS)
    evidence = Evidence.from_tables(
        rows(("a", "ann", "cat"), ("c", "ann", "dog")), {"net": read_probabilities(tmp_path / "p.npz")}
    )
    place = [evidence.annotations.items.index(name) for name in ITEMS]
    np.testing.assert_allclose(evidence.probabilities["net"][place], P)


def test_combine_reads_arrays_and_datasets(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("item,annotator,label\na,ann,cat\nb,ann,dog\nb,bob,dog\nc,bob,cat\n")
    (tmp_path / "items.csv").write_text("item\na\nb\nc\n")
    np.savez(tmp_path / "named.npz", items=np.array(ITEMS), classes=np.array(CLASSES), probabilities=P)
    np.save(tmp_path / "bare.npy", P)
    dataset(tmp_path / "data", of_lists("logits", LOGITS, HUGGING))
    combined = []
    for flags in (
        ["--probabilities", "net=named.npz"],
        ["--probabilities", "net=bare.npy", "--items", "items.csv", "--classes", "cat,dog"],
        ["--probabilities", "net=data"],
    ):
        code, _, err = run("combine", "a.csv", *flags, "--output", "c.csv")
        assert (code, err) == (0, "")
        combined.append(np.loadtxt(tmp_path / "c.csv", delimiter=",", skiprows=1, usecols=(3, 4)))
    np.testing.assert_allclose(combined[1], combined[0])
    np.testing.assert_allclose(combined[2], combined[0], rtol=1e-9)
    code, _, err = run("combine", "a.csv", "--probabilities", "net=bare.npy", "--classes", "cat,dog")
    assert (code, "has no items; name a table with --items" in err) == (65, True)
    np.savez(tmp_path / "other.npz", items=np.array(ITEMS), classes=np.array(["cat", "cow"]), probabilities=P)
    code, _, err = run("combine", "a.csv", "--probabilities", "net=other.npz", "--classes", "cat,dog")
    assert code == 65
    assert "expected the classes cat, dog" in err


def test_a_folder_of_tables_reads_them_too(tmp_path: Path) -> None:
    (tmp_path / "annotations.csv").write_text("item,annotator,label\na,ann,cat\nb,ann,dog\n")
    (tmp_path / "items.csv").write_text("item,text\na,x\nb,y\nc,z\n")
    np.savez(tmp_path / "probabilities_named.npz", items=np.array(ITEMS), classes=np.array(CLASSES), probabilities=P)
    np.save(tmp_path / "probabilities_bare.npy", P)
    dataset(tmp_path / "probabilities_net-1.5", of_lists("logits", LOGITS, HUGGING))
    write_table(tmp_path / "probabilities_plain.csv", pa.table(EXPECTED))
    connector = Tables(tmp_path, classes=("cat", "dog"))
    (page,) = connector.pull(None)
    assert page.problems == ()  # a silent row is no problem
    found = {(row.model, row.item): dict(row.probabilities) for row in page.predictions}
    assert found.keys() == {(model, item) for model in ("named", "bare", "net-1.5", "plain") for item in ("a", "b")}
    for shares in (found[model, "b"] for model in ("named", "bare", "net-1.5", "plain")):
        assert shares == pytest.approx({"cat": 0.25, "dog": 0.75})
    assert list(connector.pull(page.cursor)) == []
    np.save(tmp_path / "probabilities_bare.npy", P[:, ::-1])
    assert len(list(connector.pull(page.cursor))) == 1
    write_table(tmp_path / "probabilities_plain.parquet", pa.table(EXPECTED))
    with pytest.raises(BadTable, match="another file of the same name"):
        list(connector.pull(None))
