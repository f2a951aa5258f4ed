"""A file that cannot be used stops nobody: it is left out and said in every cycle, and mending it is the cure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hitl import cycle
from hitl.audit import audit
from hitl.connectors.tables import Tables
from hitl.errors import BadInput
from hitl.service.loop import figures
from hitl.service.loops import Loops, projects_of
from hitl.settings import Settings
from hitl.store import Store
from tests import scheduled
from tests.projects import answers, settings
from tests.scheduled import T0, Told

MODEL = "item,p_0,p_1\n" + "".join(f"{n},{0.9 if n % 2 else 0.2},{0.1 if n % 2 else 0.8}\n" for n in range(12))
GRAPH = "item,neighbour\n" + "".join(f"{n},{n + 1}\n" for n in range(11))
FEATURES = "item,width\n" + "".join(f"{n},{n / 12}\n" for n in range(12))


def asked(folder: Path, who: str) -> list[str]:
    rows = (folder / f"hitl-output/assignments/{who}.csv").read_text().splitlines()
    return [row.split(",")[1] for row in rows[1:]]


def gone(path: Path) -> None:
    path.unlink(missing_ok=True)


def garbage(path: Path) -> None:
    path.write_bytes(b"\x00\xff\xfe" * 40)


@pytest.mark.filterwarnings("ignore:default ignores the graph")
@pytest.mark.parametrize("dies", [gone, garbage])
@pytest.mark.parametrize(
    ("part", "named", "content", "said"),
    [
        ("models", lambda path: {"models": {"gpt": str(path)}}, MODEL, "models.gpt is left out: "),
        ("graph", lambda path: {"graph": {"file": str(path)}}, GRAPH, "the graph is left out: "),
        ("features", lambda path: {"features": {"file": str(path)}}, FEATURES, "features: "),
    ],
    ids=["models", "graph", "features"],
)
def test_all_are_served_while_a_file_is_dead(
    folder: Path,
    store: Store,
    part: str,
    named: Callable[[Path], dict[str, object]],
    content: str,
    said: str,
    dies: Callable[[Path], None],
) -> None:
    file = folder / f"{part}-given.csv"
    file.write_text(content)
    whole: Settings = settings(**named(file))
    assert cycle.run(whole, store, Tables(folder)).pulled.problems == ()
    dies(file)
    for _ in range(2):
        report = cycle.run_if_changed(whole, store, Tables(folder))
        (told,) = report.pulled.problems
        assert told.startswith(said)
        assert str(file) in told
        assert "Fix the file" in told
        assert figures(report)["problems"] == [told]
        for who in ("dee", "eve"):
            first = asked(folder, who)[:1]
            assert first
            answers(folder, *((item, who, 1) for item in first))
    file.write_text(content)
    assert cycle.run(whole, store, Tables(folder)).pulled.problems == ()
    assert audit(whole, store, Tables(folder)).differences == ()


def test_a_model_whose_file_has_words_for_numbers_is_left_out(folder: Path, store: Store) -> None:
    """Its table can be read, and fits the items; what it says is no probability."""
    file = folder / "model.csv"
    whole = settings(models={"gpt": str(file)})
    for wrong in ("seven", "7.5"):
        file.write_text(MODEL.replace("0.1\n", f"{wrong}\n"))
        (told,) = cycle.run(whole, store, Tables(folder)).pulled.problems
        assert told.startswith("models.gpt is left out: ")
    file.write_text(MODEL)
    assert cycle.run(whole, store, Tables(folder)).pulled.problems == ()


def test_a_dead_table_leaves_what_was_asked_and_the_advice_cures(folder: Path, store: Store) -> None:
    cycle.run(settings(), store, Tables(folder))
    before, rows = asked(folder, "eve"), (folder / "annotations.csv").read_text()
    (folder / "annotations.csv").unlink()
    for _ in range(2):
        with pytest.raises(BadInput, match=r"annotations\.\* is gone.*nothing was deleted\. Put it back"):
            cycle.run(settings(), store, Tables(folder))
        assert asked(folder, "eve") == before
    (folder / "annotations.csv").write_text(rows)
    cycle.run(settings(), store, Tables(folder))
    assert audit(settings(), store, Tables(folder)).differences == ()


def test_a_scheduled_cycle_tells_what_it_left_out(tmp_path: Path) -> None:
    told, config = Told(), scheduled.project(tmp_path)
    config.write_text(config.read_text() + '[models]\ngpt = "gpt.csv"\n')
    with Loops(projects_of([config]), told) as loops:
        (loop,) = loops.loops
        loop.turn()
        (said,) = told["done"][0]["problems"]
        assert said.startswith("models.gpt is left out: ")
        (tmp_path / "gpt.csv").write_text(MODEL)
        loop._run_at = T0  # a webhook has come
        loop.turn()
    assert "problems" not in told["done"][1]
