"""Graphs on the command line and in projects: files and projects of a grid of items, in patches of two classes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hitl.connectors.tables import Tables
from hitl.evidence import Evidence
from hitl.learning.graph import graph_of_file
from hitl.models import NetworkIBCC
from hitl.project import load, stored, stored_evidence
from hitl.tables.read import read_table
from tests.command_line import Run

SIDE = 16
NEAREST = "--neighbours links items to those with the nearest --features, in place of --graph"
NETWORK = ("combine", "annotations.csv", "-m", "network-ibcc", "--json", "--labels")
TOML = """\
name = "p"
store = "sqlite:///p.db"

[source]
kind = "tables"
path = "."
{source}

[combine]
method = "{method}"

{more}
"""


def truth_of(n: int) -> str:
    return ("cat", "dog")[(n // SIDE // 6 + n % SIDE // 6) % 2]


def edges() -> list[tuple[int, int]]:
    """Items side by side, and one above the other."""
    return [(n, n + 1) for n in range(SIDE**2) if (n + 1) % SIDE] + [(n, n + SIDE) for n in range(SIDE**2 - SIDE)]


def write_annotations(folder: Path, item: str = "item") -> None:
    """Two labels an item, of six annotators who are right in 55 to 80 of 100 cases; items are called i0, i1, ..."""
    rng, lines = np.random.default_rng(0), [f"{item},annotator,label"]
    right = rng.uniform(0.55, 0.8, size=6)
    for n in range(SIDE**2):
        for k in rng.choice(6, 2, replace=False):
            other = "dog" if truth_of(n) == "cat" else "cat"
            lines.append(f"i{n},ann{k},{truth_of(n) if rng.random() < right[k] else other}")
    (folder / "annotations.csv").write_text("\n".join(lines) + "\n")


def write_graph(path: Path, item: str = "item") -> None:
    path.write_text(f"{item},neighbour\n" + "".join(f"i{n},i{m}\n" for n, m in edges()))


def write_features(path: Path) -> None:
    """The place of each item in the grid."""
    path.write_text("item,row,column\n" + "".join(f"i{n},{n // SIDE},{n % SIDE}\n" for n in range(SIDE**2)))


def write_project(folder: Path, more: str = "", *, method: str = "network-ibcc", source: str = "") -> None:
    (folder / "hitl.toml").write_text(TOML.format(method=method, more=more, source=source))


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    write_annotations(tmp_path)
    return tmp_path


def accuracy(rows: list[dict[str, str]]) -> float:
    return float(np.mean([row["label"] == truth_of(int(row["item"][1:])) for row in rows]))


def of_project(run: Run, folder: Path) -> float:
    """The accuracy of what a cycle says."""
    code, _, err = run("run")
    assert code == 0, err
    return accuracy(read_table(folder / "hitl-output" / "consensus.csv", ["item"]).to_pylist())


def doctor(run: Run) -> list[str]:
    """What it says of the graph, and what to do about it."""
    lines = run("doctor")[1].splitlines()
    after = [*lines[1:], ""]
    found = [(line, more) for line, more in zip(lines, after, strict=True) if line[6:].startswith("graph: ")]
    return [part for line, more in found for part in (line, more) if part is line or "->" in part]


# -- files -------------------------------------------------------------------------------------------------------


def test_combine_takes_a_graph(run: Run, grid: Path) -> None:
    write_graph(grid / "graph.csv")
    code, out, err = run(*NETWORK, "--graph", "graph.csv")
    assert (code, err) == (0, "")
    linked = accuracy(json.loads(out)["consensus"])
    alone = accuracy(json.loads(run("combine", "annotations.csv", "--json", "--labels")[1])["consensus"])
    assert linked > alone + 0.05
    table = read_table(grid / "annotations.csv", ["item", "annotator", "label"])
    evidence = Evidence.from_tables(table, graph=[(f"i{n}", f"i{m}") for n, m in edges()])
    expected = NetworkIBCC().fit(evidence)
    assert [row["p_cat"] for row in json.loads(out)["consensus"]] == expected.probabilities[:, 0].tolist()


def test_neighbours_are_linked_by_their_features_and_nothing_is_ignored(run: Run, grid: Path) -> None:
    write_features(grid / "features.csv")
    flags = ("--features", "features.csv", "--neighbours", "4")
    code, out, err = run(*NETWORK, *flags)
    assert (code, err) == (0, "")
    alone = accuracy(json.loads(run("combine", "annotations.csv", "--json", "--labels")[1])["consensus"])
    assert accuracy(json.loads(out)["consensus"]) > alone + 0.05
    assert run("annotators", "annotations.csv", "-m", "network-ibcc", *flags)[::2] == (0, "")


def test_a_graph_that_the_method_does_not_use_is_a_warning_that_says_which_would(run: Run, grid: Path) -> None:
    write_graph(grid / "graph.csv")
    code, _, err = run("combine", "annotations.csv", "--graph", "graph.csv")
    assert code == 0
    assert err == "hitl: warning: default ignores the graph; network-dawid-skene and network-ibcc do not\n"
    code, _, err = run(*NETWORK)
    assert code == 65
    assert "network-ibcc needs a graph of the items (graph=, --graph, [graph]) and found none" in err


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (
            ("--neighbours", "3"),
            78,
            NEAREST,
        ),
        (
            ("--graph", "g.csv", "--neighbours", "3"),
            78,
            NEAREST,
        ),
        (("--graph", "absent.csv"), 65, "absent.csv: no such file"),
        (("--graph", "annotations.csv"), 65, "annotations.csv: no column 'neighbour'; found item, annotator, label."),
        (("--graph", "annotations.csv"), 65, "Name its column of items like that of the annotations"),
        (("--graph", "g.csv"), 65, "g.csv, line 3: the weight is -1; expected a number of at least 0"),
        (("--graph", "other.csv"), 65, "other.csv: none of its 2 items is among the 256 annotated ones"),
        (("--graph", "g.csv", "--output", "g.csv"), 65, "g.csv"),
    ],
)
def test_graphs_that_cannot_be_used_say_why(
    run: Run, grid: Path, flags: tuple[str, ...], code: int, message: str
) -> None:
    (grid / "g.csv").write_text("item,neighbour,weight\ni0,i1,1\ni1,i2,-1\n")
    (grid / "other.csv").write_text("item,neighbour\nx,y\n")
    found, _, err = run("combine", "annotations.csv", "-m", "network-ibcc", *flags)
    assert found == code
    assert message in err


# -- projects ----------------------------------------------------------------------------------------------------


def test_a_graph_in_the_folder_of_tables_is_used(run: Run, grid: Path) -> None:
    write_project(grid, method="vb-ibcc")
    alone = of_project(run, grid)
    assert doctor(run) == []
    write_graph(grid / "graph.csv")
    write_project(grid)
    assert of_project(run, grid) > alone + 0.05
    assert doctor(run) == [f"ok    graph: {len(edges())} edges among 256 items"]


def test_a_file_of_edges_is_named_by_own_ids_and_read_in_every_cycle(run: Run, grid: Path) -> None:
    (grid / "more").mkdir()
    write_graph(grid / "more" / "links.csv", "photo")
    write_project(grid, '[graph]\nfile = "more/links.csv"\nitem = "photo"')
    accurate = of_project(run, grid)
    with (grid / "more" / "links.csv").open("a") as file:
        file.write("i0,i999\ni999,i0\ni998,i999\n")
    assert doctor(run) == [
        f"ok    graph: {len(edges())} edges among 256 items; left out: 2 edges to items that the project does not have"
    ]
    assert of_project(run, grid) == accurate
    (grid / "more" / "links.csv").write_text("photo,neighbour\ni0,i1\n")
    assert doctor(run) == ["ok    graph: 1 edge among 256 items; 254 items have none"]
    assert of_project(run, grid) < accurate
    (grid / "more" / "links.csv").write_text("photo,neighbour\ni0,i1\ni1,\n")
    assert run("run")[0] == 65
    assert "line 3: the neighbour is empty" in doctor(run)[0]
    (grid / "more" / "links.csv").write_text("photo,neighbour\nx,y\n")
    code, _, err = run("run")
    assert code == 65
    assert "none of its 2 items is among the 256 items of the project (for instance 'x', unlike 'i0')" in err


def test_a_source_with_a_column_of_items_of_another_name(run: Run, grid: Path) -> None:
    write_annotations(grid, "photo")
    write_graph(grid / "graph.csv", "photo")
    write_project(grid, source='item = "photo"')
    assert run("run")[0] == 0
    assert doctor(run) == [f"ok    graph: {len(edges())} edges among 256 items"]
    assert load(grid / "hitl.toml").graph.item == "photo"


def test_neighbours_by_the_features_of_a_project(run: Run, grid: Path) -> None:
    write_project(grid, "[graph]\nneighbours = 4")
    assert run("pull")[0] == 0
    assert doctor(run)[0] == "FAIL  graph: graph.neighbours has no features to find neighbours by"
    write_features(grid / "features.csv")
    write_project(grid, '[graph]\nneighbours = 4\n[features]\nfile = "features.csv"')
    assert doctor(run)[0] == "FAIL  graph: not built yet: it needs the features"
    linked = of_project(run, grid)
    assert doctor(run)[0].startswith("ok    graph: ")
    with stored(Path("hitl.toml")) as (settings, store):
        evidence = stored_evidence(settings, store, Tables(grid).questions())["label"]
    assert evidence.graph.sum(axis=1).min() == 4
    write_project(grid, method="vb-ibcc")
    assert linked > of_project(run, grid) + 0.05


def test_doctor_says_that_a_graph_is_not_used_or_missing(run: Run, grid: Path) -> None:
    write_graph(grid / "graph.csv")
    write_project(grid, method="vb-ibcc")
    code, _, err = run("run")
    assert code == 0
    assert "warning: vb-ibcc ignores the graph; network-dawid-skene and network-ibcc do not" in err
    assert doctor(run)[:2] == [
        "FAIL  graph: combine.method 'vb-ibcc' does not use it",
        '      -> combine.method = "network-ibcc" or "network-dawid-skene" uses it; or take the graph away',
    ]
    (grid / "graph.csv").unlink()
    write_project(grid)
    assert doctor(run) == [
        "FAIL  graph: combine.method 'network-ibcc' needs one",
        "      -> add [graph] with file or neighbours",
    ]


def test_doctor_looks_at_the_method_of_each_question(run: Run, grid: Path) -> None:
    own = '[combine.label]\nmethod = "network-ibcc"'
    write_project(grid, own, method="vb-ibcc")
    assert run("pull")[0] == 0
    assert doctor(run)[0] == "FAIL  graph: combine.label.method 'network-ibcc' needs one"
    write_graph(grid / "graph.csv")
    assert run("pull")[0] == 0
    (found,) = doctor(run)
    assert found.startswith("ok    graph: ")


def test_two_graphs_in_a_folder_are_one_too_many(run: Run, grid: Path) -> None:
    write_graph(grid / "graph.csv")
    write_graph(grid / "graph.csv.gz")
    write_project(grid)
    code, _, err = run("run")
    assert code == 65
    assert "graph.csv and graph.csv.gz both are there; expected one graph table" in err


def test_a_graph_of_a_file_counts_each_edge_once(tmp_path: Path) -> None:
    path = tmp_path / "graph.csv"
    path.write_text("item,neighbour,weight\nb,a,2\na,b,1\nc,c,1\na,new,1\nnew,a,4\nnew,newer,1\n")
    found = graph_of_file(str(path), "item", ["a", "b", "c"])
    assert found.adjacency.toarray().tolist() == [[0, 2, 0], [2, 0, 0], [0, 0, 0]]
    assert (found.edges, found.alone, found.left_out) == (1, 1, 2)
