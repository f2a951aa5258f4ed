"""`hitl data get` writes a set whole, or nothing: here from a server that has the labels of `rte`."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest

from hitl.demo import public, recorded
from tests.command_line import Run

SOURCE = {"/rte/label.csv": "annotations.csv", "/rte/truth.csv": "truth.csv"}
HEADERS = {"annotations.csv": b"item,worker,label", "truth.csv": b"item,truth"}


def original(content: bytes, file: str) -> bytes:
    """A table of ours as its source has it: only the header differs."""
    return HEADERS[file] + b"\n" + content.partition(b"\n")[2]


class Source(BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []
    missing = 0
    """Number of bytes that a file promises and does not deliver."""

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path not in SOURCE:
            self.send_error(404)
            return
        file = SOURCE[self.path]
        content = original((recorded.FOLDER / file).read_bytes(), file)
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) - self.missing])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Entry of the catalogue, which a test may change: `write(entry)`."""
    monkeypatch.setattr(Source, "asked", [])
    monkeypatch.setattr(Source, "missing", 0)
    with ThreadingHTTPServer(("127.0.0.1", 0), Source) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        digests = {
            name: hashlib.sha256(original((recorded.FOLDER / file).read_bytes(), file)).hexdigest()
            for name, file in (("label.csv", "annotations.csv"), ("truth.csv", "truth.csv"))
        }
        yield {"source": f"http://127.0.0.1:{server.server_port}/rte", **digests}
        server.shutdown()
        thread.join()


@pytest.fixture
def here(tmp_path: Path, run: Run, entry: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "catalogue").mkdir()
    write(tmp_path, entry, monkeypatch)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def write(folder: Path, entry: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "catalogue" / "public.toml"
    digests = ", ".join(f"'{name}' = '{entry[name]}'" for name in ("label.csv", "truth.csv"))
    path.write_text(
        "[rte]\nabout = 'pairs'\nitems = 800\nannotators = 164\nclasses = 2\nlabels = 8000\ntruth = 800\n"
        f"licence = 'MIT'\npaper = 'Snow 2008'\nsource = '{entry['source']}'\nsha256 = {{ {digests} }}\n"
    )
    monkeypatch.setattr(public, "CATALOGUE", path)


def test_a_set_is_read_as_it_comes_and_names_its_licence(here: Path, run: Run) -> None:
    code, out, err = run("data", "get", "rte")
    assert (code, err) == (0, "")
    assert "licence: MIT" in out
    assert sorted(path.name for path in (here / "rte").iterdir()) == ["README.md", "annotations.csv", "truth.csv"]
    for file in ("annotations.csv", "truth.csv"):
        assert (here / "rte" / file).read_bytes() == (recorded.FOLDER / file).read_bytes()
    assert "Licence: MIT\n\nPaper: Snow 2008\n" in (here / "rte" / "README.md").read_text()
    assert os.listdir(here) == ["rte"]
    assert run("combine", "rte/annotations.csv", "--output", "consensus.csv")[0] == 0
    assert run("estimate", "consensus.csv", "--truth", "rte/truth.csv")[0] == 0


@pytest.mark.parametrize("file", ["label.csv", "truth.csv"])
def test_another_file_is_refused_and_nothing_is_written(
    here: Path, entry: dict[str, str], run: Run, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    write(here.parent, entry | {file: "0" * 64}, monkeypatch)
    code, _, err = run("data", "get", "rte")
    assert code == 65
    assert f"{entry['source']}/{file}: this is not the file that hitl knows (SHA-256 {entry[file]}, expected 0" in err
    assert os.listdir(here) == []


def test_an_interrupted_download_leaves_nothing(here: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Source, "missing", 100)
    code, _, err = run("data", "get", "rte", "new/folder")
    assert (code, "nothing was written, try again" in err) == (69, True), err
    assert os.listdir(here / "new") == []
    monkeypatch.setattr(Source, "missing", 0)
    assert run("data", "get", "rte", "new/folder")[0] == 0


def test_a_source_that_is_gone_is_named(
    here: Path, entry: dict[str, str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(here.parent, entry | {"source": f"{entry['source']}/moved"}, monkeypatch)
    code, _, err = run("data", "get", "rte")
    assert (code, "404" in err, os.listdir(here)) == (69, True, [])


def test_a_folder_that_exists_is_left_alone(here: Path, run: Run) -> None:
    (here / "rte").mkdir()
    (here / "rte" / "mine.txt").write_text("mine")
    code, _, err = run("data", "get", "rte")
    assert (code, "rte exists; name a new folder: `hitl data get rte FOLDER`" in err) == (78, True), err
    code, _, err = run("data", "get", "ret")
    assert (code, "'ret' is unknown; expected one of rte" in err) == (78, True)
    assert (os.listdir(here / "rte"), Source.asked) == (["mine.txt"], [])


def test_the_list_names_licence_paper_and_address(run: Run) -> None:
    code, out, _ = run("data", "list")
    assert code == 0
    listed = json.loads(run("data", "list", "--json")[1])
    for name, entry in listed.items():
        assert f"{name}: {entry['about']}\n" in out
        assert all(entry[key] in out for key in ("licence", "paper", "source"))
        assert set(entry["sha256"]) == set(public.FILES)


@pytest.mark.parametrize("name", public.catalogue())
def test_the_catalogue_is_true_of_the_copies_that_figures_come_from(name: str) -> None:
    folder = Path(os.environ.get("HITL_DATA", "none")) / name
    if not folder.exists():
        pytest.skip("HITL_DATA is not set")
    listed = public.catalogue()[name]
    packed, plain = folder / "annotations.csv.gz", folder / "annotations.csv"
    labels = gzip.decompress(packed.read_bytes()) if packed.exists() else plain.read_bytes()
    truth = (folder / "truth.csv").read_bytes()
    for file, content in (("annotations.csv", labels), ("truth.csv", truth)):
        (source,) = (key for key, (ours, _) in public.FILES.items() if ours == file)
        assert hashlib.sha256(original(content, file)).hexdigest() == listed.sha256[source]
    rows = [line.split(",") for line in labels.decode().splitlines()[1:]]
    sizes = listed.items, listed.annotators, listed.classes, listed.labels
    classes = {row[2] for row in rows} | {line.split(",")[1] for line in truth.decode().splitlines()[1:]}
    assert sizes == (len({row[0] for row in rows}), len({row[1] for row in rows}), len(classes), len(rows))
    assert listed.truth == truth.count(b"\n") - 1
