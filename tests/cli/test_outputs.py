"""What a command writes: over no file that is read, and one file a question."""

from __future__ import annotations

from pathlib import Path

from hitl.cli.evidence import of_question


def test_every_question_has_a_file_of_its_own_with_a_name_that_can_be(tmp_path: Path) -> None:
    names = ("age=<18", "age=>18", "C#", "C+", "a b", "a/b", "🐈", "🐕", "..", "x" * 300, "x" * 301, "ü" * 150)
    files = [of_question(tmp_path / "labels.csv.gz", name, len(names)) for name in names]
    for file in files:
        file.touch()
    assert {*tmp_path.iterdir()} == {*files}
    assert len({*files}) == len(names)
    plain = [of_question(Path("labels.csv.gz"), name, 2).name for name in ("topics=art", "mood-2_é")]
    assert plain == ["labels.topics=art.csv.gz", "labels.mood-2_é.csv.gz"]
    assert of_question(Path("labels.csv"), "C#", 1) == Path("labels.csv")
