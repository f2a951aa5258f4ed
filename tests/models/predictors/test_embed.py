"""`hitl embed`: from a table or a project to features, each made once."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from hitl.errors import BadTable
from hitl.models.predictors.inputs import Inputs
from hitl.models.predictors.transforms import tfidf_svd
from hitl.tables.matrices import read_vectors
from tests.command_line import Run
from tests.docs.test_docs import blocks
from tests.projects import folder_with_tables

MINE = """
from pathlib import Path

def lengths(texts):
    with Path("seen.log").open("a") as log:
        log.write("".join(f"{text}\\n" for text in texts))
    return [[len(text), 1.5] for text in texts]
"""
SAID = ["a red cat", "the red dog", "", "dogs and cats"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = "".join(f"i{n},{text},{n},{'ab'[n % 2]}\n" for n, text in enumerate(SAID))
    (tmp_path / "items.csv").write_text(f"item,text,size,kind\n{rows}")
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def seen(folder: Path) -> list[str]:
    log = folder / "seen.log"
    found = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return found


@pytest.mark.parametrize("output", ["f.parquet", "f.csv", "f.jsonl"])
def test_texts_into_a_file(run: Run, folder: Path, output: str) -> None:
    code, out, err = run("embed", "items.csv", "--text", "text", "--dimensions", "2", "-o", output)
    assert (code, err) == (0, "hitl: warning: no features of 1 item ('i2': 'text' is empty)\n")
    assert out.startswith("3 items have 2 features each; ")
    assert out.endswith(f"wrote {output}\n")
    items, x_nd = read_vectors(folder / output)
    assert items == ["i0", "i1", "i2", "i3"]
    np.testing.assert_allclose(x_nd[[0, 1, 3]], tfidf_svd([text for text in SAID if text], 2), atol=1e-12)
    assert np.isnan(x_nd[2]).all()


def test_what_was_embedded_is_kept(run: Run, folder: Path) -> None:
    command = ("embed", "items.csv", "--text", "text", "--model", "mine.py:lengths", "-o", "f.csv", "--batch-size", "2")
    assert run(*command)[0] == 0
    assert seen(folder) == [text for text in SAID if text]
    assert run(*command)[0] == 0
    assert seen(folder) == []
    with (folder / "items.csv").open("a") as file:
        file.write("i4,new,1,a\n")
    code, out, _ = run(*command, "--json")
    assert code == 0
    told = {"items": 4, "dimensions": 2, "left_out": {"i2": "'text' is empty"}, "written": {"features": "f.csv"}}
    assert json.loads(out) == told
    assert seen(folder) == ["new"]
    assert run(*command[:-4], "-o", "g.csv", "--cache", ".f.csv.cache")[0] == 0
    assert seen(folder) == []
    assert (folder / "f.csv").read_bytes() == (folder / "g.csv").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["items.csv", "-o", "f.csv"], 78, "give one of --text, --image and --columns"),
        (["items.csv", "--text", "text", "--image", "text", "-o", "f.csv"], 78, "text and image exclude each other"),
        (["--text", "text", "-o", "f.csv"], 78, "either a table of items or --project"),
        (["items.csv", "--text", "text"], 78, "expected a file to write: --output"),
        (["items.csv", "--text", "text", "-o", "f.txt"], 65, "f.txt: expected a file name that ends in one of .csv"),
        (["items.csv", "--text", "text", "-o", "items.csv"], 65, "items.csv is named twice"),
        (["items.csv", "--text", "txt", "-o", "f.csv"], 65, "no column 'txt'; found item, text, size, kind"),
        (["items.csv", "--text", "text", "--missing", "zero", "-o", "f.csv"], 2, "is not one of"),
        (
            ["items.csv", "--text", "text", "--missing", "refuse", "-o", "f.csv"],
            65,
            "no features of 1 item ('i2': 'text'",
        ),
        (["items.csv", "--image", "text", "-o", "f.csv"], 78, "image: needs a model"),
        (["items.csv", "--columns", "kind", "--model", "m:f", "-o", "f.csv"], 78, "model: sees a text or an image"),
        (["items.csv", "--text", "text", "--model", "absent.py:f", "-o", "f.csv"], 78, "model absent.py: no such file"),
        (["--project", "--text", "text"], 78, "takes its options from [features]"),
    ],
)
def test_what_cannot_be_embedded_says_why(
    run: Run, folder: Path, arguments: list[str], code: int, message: str
) -> None:
    ended, out, err = run("embed", *arguments)
    assert (ended, out) == (code, "")
    assert message in err
    assert not (folder / "f.csv").exists()


def test_a_project_embeds_what_its_settings_say(run: Run, tmp_path: Path) -> None:
    """From another folder than that of hitl.toml, beside which its files are."""
    team = tmp_path / "team"
    team.mkdir()
    folder_with_tables(team / "labels")
    settings, config = '[source]\nkind = "tables"\npath = "labels"\n', ("--config", "team/hitl.toml")
    (team / "hitl.toml").write_text(f'name = "p"\n{settings}')
    told = "hitl: team/hitl.toml: no [features] to embed; expected text, image, columns or file there\n"
    assert run("embed", "--project", *config)[::2] == (78, told)
    (team / "hitl.toml").write_text(f'name = "p"\n{settings}[features]\ntext = "text"\nmodel = "mine.py:lengths"\n')
    (team / "mine.py").write_text(MINE)
    assert "has no items; run `hitl pull` first" in run("embed", "--project", *config)[2]
    assert run("pull", *config)[0] == 0
    assert "FAIL  features: not computed yet" in run("doctor", *config)[1]
    code, out, err = run("embed", "--project", "-o", "f.csv", *config)
    assert (code, err) == (0, "")
    assert out.startswith("12 items have 2 features each")
    assert len(seen(tmp_path)) == 12
    items, x_nd = read_vectors(tmp_path / "f.csv")
    assert dict(zip(items, x_nd[:, 0].tolist(), strict=True))["10"] == len("text 10")
    assert "ok    features: 12 of 12 items, 2 numbers each" in run("doctor", *config)[1]
    assert run("run", *config)[0] == 0
    assert seen(tmp_path) == []
    (team / "hitl.toml").write_text(f'name = "p"\n{settings}[features]\nfile = "f.csv"\n')
    (tmp_path / "f.csv").rename(team / "f.csv")
    assert run("embed", "--project", *config)[0] == 0


MODELS = """
class Sentences:
    def encode(self, texts):
        return [[len(text), text.count("a")] for text in texts]
"""


def test_the_examples_of_the_guide_run(run: Run, tmp_path: Path) -> None:
    torch, vision = pytest.importorskip("torch"), pytest.importorskip("torchvision")
    image = pytest.importorskip("PIL.Image")
    rows = [f"{n},text number{n},{n},{'de' if n % 2 else 'fr'}" for n in range(6)]
    (tmp_path / "items.csv").write_text("\n".join(["item,text,length,language", *rows]) + "\n")
    (tmp_path / "photos.csv").write_text("item,path\n0,0.png\n1,1.png\n")
    (tmp_path / "my_models.py").write_text(MODELS)
    for n in range(2):
        image.effect_noise((40, 40), 50).save(tmp_path / f"{n}.png")
    torch.save(vision.models.resnet18(num_classes=2).state_dict(), tmp_path / "photos.pt")
    lines = [line for _, code in blocks("embed") for line in code.splitlines()]
    assert len(lines) == 4
    for line in lines:
        name, *arguments = shlex.split(line)
        assert name == "hitl"
        code, out, err = run(*arguments)
        assert (code, err) == (0, ""), f"{line}\n{out}\n{err}"
    shapes = {path.stem: read_vectors(path)[1].shape for path in tmp_path.glob("*.parquet")}
    assert shapes == {"texts": (6, 6), "sentences": (6, 2), "photos": (2, 512)}


def test_a_repeated_item_is_named_by_its_line(run: Run, folder: Path) -> None:
    (folder / "items.csv").write_text("item,text,size\ni0,a red cat,1\ni1,a dog,2\ni0,again,3\n")
    message = "items.csv, line 4: item 'i0' appears twice"
    assert message in run("embed", "items.csv", "--text", "text", "-o", "f.csv")[2]
    with pytest.raises(BadTable, match=message):
        Inputs(folder / "items.csv", text="text").names()
    (folder / "items.csv").write_text("item,size\ni0,1\ni1,2\ni0,3\n")
    with pytest.raises(BadTable, match=message):
        read_vectors(folder / "items.csv")
