"""A newcomer follows each page that needs a server, a person or minutes, word by word, as far as it is no tutorial."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_code_blocks import blocks, write_tables
from tests.connectors.label_studio.conftest import Project, choice
from tests.connectors.mlflow import server as mlflow_server
from tests.connectors.phoenix import server as phoenix_server
from tests.connectors.reader import Reader, fill, follows, in_label_studio
from tests.connectors.servers import free_port
from tests.events.receivers import receiving
from tests.models.predictors.chat_server import Chat, serving

pytestmark = pytest.mark.journey

PHOTOS = "hitl example photos && cd photos"
SCHEDULED = (
    "printf '[schedule]\\nevery = \"15m\"\\n' >> photos/hitl.toml && export HITL_WEBHOOK_SECRET=some-long-secret"
)
PAGES = {
    "docs/howto/access.md": ("hitl example rte && cd rte", {"0.0.0.0:8500": "$HITL_SERVE_ADDRESS"}),
    "docs/howto/export-labels.md": (f"{PHOTOS} && hitl run", {}),
    "docs/howto/learn.md": ("", {}),
    "docs/howto/operate.md": (f"{PHOTOS} && hitl run", {"FILE": "backups/*.zip"}),
    "docs/howto/replay.md": ("", {}),
    "docs/howto/schedule.md": (
        f"hitl example photos && hitl example answers reviews && {SCHEDULED} && cd reviews",
        {"reviews/hitl.toml": "hitl.toml", "photos/hitl.toml": "../photos/hitl.toml"},
    ),
    "docs/howto/serve.md": (PHOTOS, {"demo --serve": "demo --serve --address $HITL_SERVE_ADDRESS"}),
}
"""Page -> what to do before, and words of the page -> the same here."""


@follows(*PAGES)
def test_alone(tmp_path: Path, page: str) -> None:
    before, words = PAGES[page]
    write_tables(tmp_path)
    rows = [f"{n},{'cat' if n % 2 else 'dog'}\n" for n in range(16)]
    (tmp_path / "truth.csv").write_text("".join(["item,label\n", *rows]))
    (tmp_path / "people.csv").write_text("annotator,cost\nann,1\nbob,2\n")
    reader = Reader(tmp_path, words | {"127.0.0.1:8090": f"127.0.0.1:{free_port()}"})
    reader.type(before)
    reader.follow(page)


@follows("docs/howto/certify.md")
def test_with_auditors(tmp_path: Path, page: str) -> None:
    words = {
        "hitl certify --error 1% --by ann": "cd ../project && hitl certify --error 1% --by zoe",
        "hitl certify --by ann": "hitl certify --by zoe && cd ../photos",
        "--draw 300": "--draw 100",
    }
    reader = Reader(tmp_path, words)
    reader.type(
        "hitl example photos && mkdir project && cp photos/*.csv project && cd photos && "
        "head -331 ../project/annotations.csv > annotations.csv && hitl combine annotations.csv --output model.csv && "
        "tee model2.csv judge.csv < model.csv && tee people.csv even.csv < all_truth.csv && "
        "cd ../project && hitl init annotations.csv --annotators zoe && hitl run && cd ../photos"
    )

    def answer(line: str) -> None:
        if "audit.csv" in line:
            fill(reader.here / "audit.csv", "answer")
        elif "repeat it" in line:
            while "not proven" in reader.type(line):
                fill(reader.here / "audit.csv", "answer")
        elif "--output corrected.csv" in line:
            reader.type("cp corrected.csv labels.csv")
        elif "--draw" in line:
            fill(reader.here / "known.csv", "label")
        elif "asks ann" in line:
            with (reader.here / "hitl-output/assignments/zoe.csv").open() as asked:
                rows = [f"{row['item']},zoe,cat\n" for row in csv.DictReader(asked)]
            with (reader.here / "annotations.csv").open("a") as file:
                file.writelines(rows[:25])

    reader.follow(page, answer)
    assert "after 0 audited" not in reader.type("cd ../project && hitl certify --by zoe")


@follows("docs/howto/events.md")
def test_with_receivers(tmp_path: Path, page: str) -> None:
    with receiving() as receiver:
        words = {"https://jobs.example/hitl": receiver.url, "https://hooks.example/services/...": f"'{receiver.url}'"}
        reader = Reader(tmp_path, words)
        reader.type(PHOTOS)
        reader.follow(page)
        assert len(receiver.got) == 2


@follows("docs/howto/language-models.md")
def test_with_a_language_model(tmp_path: Path, page: str) -> None:
    (prompt,) = [block.code for block in blocks(page) if block.language == "text"]
    (tmp_path / "prompt.j2").write_text(prompt)
    (tmp_path / "items.csv").write_text("item,text\n1,Buy now\n2,See you at nine\n")
    (tmp_path / "annotations.csv").write_text("item,annotator,label\n1,ann,spam\n2,ann,ham\n")
    with serving(Chat()) as chat:
        Reader(tmp_path, {"https://api.openai.com/v1": chat.url, "API_KEY=...": "API_KEY=some-key"}).follow(page)
        assert [request["model"] for request in chat.requests] == ["gpt-4o-mini"] * 2
    assert (tmp_path / "consensus.csv").exists()


@follows("docs/howto/scale.md")
def test_on_a_cluster(tmp_path: Path, page: str) -> None:
    cluster = pytest.importorskip("hitl.shards.cluster")
    pytest.importorskip("distributed")
    write_tables(tmp_path)
    here = f"file://{tmp_path}"
    with cluster.on_dask(None, 1) as engine:
        words = {"s3://bucket/shards": f"{here}/shards", "s3://bucket": f"{here}/bucket"}
        Reader(tmp_path, words | {"tcp://scheduler:8786": engine._client.scheduler.address}).follow(page)
    assert (tmp_path / "bucket/results/summary.json").exists()


@pytest.mark.server
@follows("README.md", "docs/howto/connect-label-studio.md", "docs/howto/ground-truth.md")
def test_in_label_studio(tmp_path: Path, make_project: Callable[..., Project], page: str) -> None:
    project = make_project()
    (imported,) = project.add(1, lambda n: [{"result": choice("good")}])
    words = in_label_studio(project, tmp_path) | {"hitl init": f"cd '{tmp_path}' && hitl init"}
    words |= {"http://localhost:8080": project.server.url, "project=12": f"project={project.number}"}
    write_tables(tmp_path)
    reader = Reader(tmp_path, words | {'api_key="..."': f'api_key="{project.server.token}"'})
    try:
        reader.follow(page)
    finally:
        reader.state.unlink()  # it holds the token
    (annotation,) = project.task(imported)["annotations"]
    assert annotation["ground_truth"] == ("ground-truth" not in page)
    assert any(name.startswith("hitl-order") for name in project.versions()) == ("ground-truth" not in page)


@pytest.mark.server
@follows("docs/howto/label-traces.md")
def test_where_traces_are(
    tmp_path: Path, mlflow: mlflow_server.Server, phoenix: phoenix_server.Server, page: str
) -> None:
    of_mlflow = mlflow.experiment("guide", 6, {"correct": {"categorical": {"options": ["yes", "no"]}}})
    of_phoenix = phoenix.project("guide", 6, {"correct": ["yes", "no"]})
    for n in range(4):
        for made, judge in ((of_mlflow, "LLM_JUDGE"), (of_phoenix, "LLM")):
            made.say(n, "ann", "yes" if n % 2 else "no")
            made.say(n, "gpt", "yes", kind=judge)
    words = {"http://localhost:5000": mlflow.url, "http://localhost:6006": phoenix.url, "chat": "guide"}
    words |= {"hitl init --phoenix": "mkdir phoenix && cd phoenix && hitl init --phoenix", "API_KEY=...": "API_KEY=key"}
    Reader(tmp_path, words).follow(page)
    assert of_mlflow.queue("hitl: bob")
    assert [one for one in of_phoenix.annotations(0) if one["name"] == "correct_hitl"]
    assert (tmp_path / "phoenix/judges.html").exists()
