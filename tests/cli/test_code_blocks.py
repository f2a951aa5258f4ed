"""Each code block of the documents works as printed. Blocks of a page run in order, in one folder and one module.

- ```python runs, and so does each `hitl` and `cd` line of ```sh. Lines of other programs are left out.
- ```python no_run is compiled, and a `hitl` line of ```sh no_run is parsed: they need a server, a terminal or minutes.
  A newcomer follows such pages in `tests.connectors`.
- ```toml is read as hitl.toml, or as entry points of a pyproject.toml, whose classes the page has.
- <!--run:NAME--> before a block says that a test of its own runs it.
- `hitl ...` in a sentence names a command and options that exist.
"""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from hitl.active.registry import POLICIES
from hitl.connectors.catalog import CONNECTORS, IMPORTERS, settings_of
from hitl.models.methods import COMBINERS
from hitl.settings.loading import load
from hitl.tables.write import write_table
from tests.command_line import Run, command_of

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "deploy/README.md",
        *sorted(ROOT.glob("docs/**/*.md")),
    )
}
BLOCK = re.compile(r"^(?:<!--run:(\w+)-->\n)?```(.*)\n((?s:.*?))^```$", re.MULTILINE)
GROUPS: dict[str, Any] = {registry.group: registry for registry in (COMBINERS, POLICIES, CONNECTORS, IMPORTERS)}


@dataclass(frozen=True)
class Block:
    """A code block: its language and tag, whether this file runs it, and its code at its lines of the page."""

    language: str
    tag: str
    runs: bool
    code: str

    def lines(self) -> Iterator[list[str]]:
        """The words of each call of `hitl` or `cd`."""
        code = self.code.replace("\\\n", " ").replace(" && ", "\n")
        for line in code.splitlines() if self.language == "sh" else ():
            found = re.match(r"(?:\w+=\S+ )*(?:\S+/)?(hitl|cd) (.*)", line.strip())
            if found:
                yield [found[1], *shlex.split(re.split(" >> | > | < | \\| ", found[2])[0], comments=True)]

    def commands(self) -> Iterator[list[str]]:
        """The words behind `hitl`, of each line that calls it."""
        return (words for program, *words in self.lines() if program == "hitl")


def blocks(page: str) -> Iterator[Block]:
    for found in BLOCK.finditer(PAGES[page]):
        language, _, tag = found[2].partition(" ")
        if language.startswith("{"):  # a directive of the site
            continue
        assert language in ("sh", "python", "toml", "text", "")
        assert tag in ("", "no_run")
        above = PAGES[page][: found.start(3)].count("\n")
        yield Block(language, tag, not tag and found[1] is None, "\n" * above + found[3])


def entry_points(block: Block) -> dict[str, dict[str, str]]:
    return tomllib.loads(block.code).get("project", {}).get("entry-points", {})  # type: ignore[no-any-return]


def pages(*languages: str) -> pytest.MarkDecorator:
    having = [page for page in PAGES if any(block.language in languages for block in blocks(page))]
    return pytest.mark.parametrize("page", having)


def write_tables(folder: Path) -> None:
    """What the blocks expect to find: sixteen items labeled by two, and a model, truth, features and links of them."""
    items, people = range(16), ("ann", "bob")
    label = ["cat" if n % 2 else "dog" for n in items]
    tables = {
        "annotations.csv": ["item,annotator,label", *(f"{n},{who},{label[n]}" for n in items for who in people)],
        "probs.csv": ["item,p_cat,p_dog", *(f"{n},{0.8 if n % 2 else 0.3},{0.2 if n % 2 else 0.7}" for n in items)],
        "truth.csv": ["item,label", *(f"{n},{label[n]}" for n in range(12))],
        "features.csv": ["item,width,height", *(f"{n},{n % 2},{n % 3}" for n in items)],
        "links.csv": ["item,neighbour", *(f"{n},{n + 2}" for n in range(14))],
        "new_items.csv": ["item,text", "100,new"],
        "texts.csv": ["item,document,text", *(f"{n},{n},Ada met {label[n]} number {n}" for n in items)],
        "spans.csv": ["document,annotator,start,end,label", *(f"{n},{who},0,3,PER" for n in items for who in people)],
        "stretches.csv": ["document,annotator,start,end,label", *(f"{n},ann,12.5,60.2,running" for n in items)],
        "people.csv": ["annotator,good", "ann,1", "bob,1"],
    }
    for name, lines in tables.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    (folder / "labels").mkdir()
    for name, n in (("labels/may.parquet", 0), ("june.parquet", 16)):
        rows = {"item": [str(k + n) for k in items], "annotator": ["ann"] * 16, "label": label}
        write_table(folder / name, pa.table(rows))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tables(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_every_command_exists_with_its_options(page: str) -> None:
    for words in (words for block in blocks(page) for words in block.commands()):
        command, name, rest = command_of(words)
        command.make_context(name, rest)
    for line in re.findall(r"`hitl ([a-z][^`<{]*)`", BLOCK.sub("", PAGES[page]).replace("\n", " ")):
        command, _, rest = command_of(shlex.split(line))
        known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        given = {word for word in rest if re.match("--?[a-z]", word)}
        assert given - {"--help"} <= known, line


@pages("toml")
def test_toml_is_accepted(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HITL_EVENTS_CHAT_URL", "https://chat.example/hook")
    code = "".join(block.code for block in blocks(page) if block.language == "python")
    for block in (block for block in blocks(page) if block.language == "toml"):
        for group, names in entry_points(block).items():
            assert group in GROUPS
            assert all(f"class {place.partition(':')[2]}" in code for place in names.values())
        if not entry_points(block):
            data = tomllib.loads(block.code)
            source = {"kind": "label-studio", "url": "http://localhost:8080", "project": 12}
            lines = [f"{key} = {value!r}" for key, value in source.items() if key not in data.get("source", {})]
            text = f"name = 'pets'\n{block.code}" + ("" if "source" in data else "\n[source]\n")
            text = text.replace("[source]\n", "\n".join(["[source]", *lines, ""]))
            (tmp_path / "hitl.toml").write_text(text)
            load(tmp_path / "hitl.toml", settings_of)


@pages("python", "sh")
def test_python_and_commands_run_in_order(page: str, folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType(page)
    monkeypatch.setitem(sys.modules, page, module)
    for block in blocks(page):
        if block.language == "toml":
            for group, names in entry_points(block).items():
                for name, place in names.items():
                    monkeypatch.setitem(GROUPS[group].own, name, place)
                    monkeypatch.setitem(sys.modules, place.partition(":")[0], module)
        if block.language == "python":
            code = compile(block.code, page, "exec")
            if block.runs:
                exec(code, vars(module))
        for program, *words in block.lines() if block.runs else ():
            if program == "cd":
                monkeypatch.chdir(words[0])
                continue
            status, out, err = run(*words)
            assert (status, "warning" in err) == (0, False), f"hitl {shlex.join(words)}\n{out}\n{err}"
    for name, function in list(vars(module).items()):
        if name.startswith("test_"):
            function(*(folder for _ in signature(function).parameters))
