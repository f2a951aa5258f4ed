"""Features of a project in a real Label Studio: of its texts, and of images that it serves to those with its token."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import httpx
import numpy as np
import pytest

from hitl import cycle
from hitl.connectors.label_studio import LabelStudio, LabelStudioSettings
from hitl.errors import Refused
from hitl.models.predictors.transforms import tfidf_svd
from hitl.settings import FeatureSettings, Settings
from hitl.store import Store
from tests.connectors.label_studio.conftest import Project

PICTURES = """<View><Image name="image" value="$image"/>
<Choices name="kind" toName="image"><Choice value="red"/><Choice value="blue"/></Choices></View>"""

MEANS = """
import numpy as np

def means(pictures):
    return [np.asarray(picture, dtype=float).mean(axis=(0, 1)) / 255 for picture in pictures]
"""


def settings(project: Project, **features: object) -> Settings:
    source = LabelStudioSettings(url=project.server.url, project=project.number)
    return Settings(name="p", source=source, features=FeatureSettings(**features))  # type: ignore[arg-type]


def png(colour: str) -> bytes:
    image, out = pytest.importorskip("PIL.Image"), BytesIO()
    image.new("RGB", (8, 8), colour).save(out, "PNG")
    return out.getvalue()


def upload(project: Project, **files: bytes) -> None:
    """As the web page does: one task a file."""
    given = [("file", (f"{name}.png", content, "image/png")) for name, content in files.items()]
    headers = {"Authorization": f"Token {project.server.token}"}
    for one in given:
        answer = httpx.post(f"{project.server.url}{project.path}/import", files=[one], headers=headers, timeout=60)
        assert answer.status_code == 201, answer.text


@pytest.mark.server
@pytest.mark.journey
def test_texts_of_tasks_are_features(project: Project, tmp_path: Path) -> None:
    tasks = project.add(6)
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        report = cycle.run(settings(project, text="text", dimensions=2), store, project.connector)
    evidence = report.judgement.evidence["sentiment"]
    assert evidence.annotations.items == tuple(map(str, tasks))
    np.testing.assert_allclose(evidence.features, tfidf_svd([f"text {n}" for n in range(6)], 2))


@pytest.mark.server
@pytest.mark.journey
def test_uploaded_images_are_fetched_with_the_token_and_once(
    make_project: Callable[..., Project], tmp_path: Path
) -> None:
    project = make_project(PICTURES)
    upload(project, red=png("red"), blue=png("blue"), broken=b"no image")
    (tmp_path / "mine.py").write_text(MEANS)
    chosen = settings(project, image="image", model=f"{tmp_path}/mine.py:means")

    def asked() -> int:
        found = [path for _, path in project.recorder.requests if path.startswith("/data/upload/")]
        project.recorder.requests.clear()
        return len(found)

    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        report = cycle.run(chosen, store, project.connector)
        evidence = report.judgement.evidence["kind"]
        assert evidence.features is not None
        np.testing.assert_allclose(evidence.features[:2], [[1, 0, 0], [0, 0, 1]])
        assert np.isnan(evidence.features[2]).all()
        (told,) = report.pulled.problems
        assert "cannot be read as an image: UnidentifiedImageError" in told
        assert asked() == 3
        upload(project, green=png("lime"))
        evidence = cycle.run(chosen, store, project.connector).judgement.evidence["kind"]
        assert evidence.features is not None
        assert evidence.features[3].tolist() == [0, 1, 0]
        assert asked() == 2  # the new one, and the broken one again
    path = store_path(project)
    assert httpx.get(project.server.url + path).status_code in (401, 403)
    assert project.connector.serves(project.server.url + path)
    assert project.connector.fetch(project.server.url + path) == png("red")
    assert not project.connector.serves(f"http://elsewhere.example{path}")
    with pytest.raises(Refused, match="not a file of"):
        project.connector.fetch("http://elsewhere.example/data/upload/a.png")


def store_path(project: Project) -> str:
    """The address of the first uploaded image, as its task holds it."""
    tasks = project.admin.tasks(project.number, ["id", "data"])
    return str(next(iter(tasks))["data"]["image"])


@pytest.mark.parametrize("url", ["https://labels.example", "https://example.org/labels"])
def test_which_addresses_are_served_and_how_they_are_asked_for(url: str) -> None:
    asked: list[httpx.URL] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url)
        assert request.headers["authorization"] == "Token secret"
        return httpx.Response(200, content=b"content")

    connector = LabelStudio(url, "secret", 1, transport=httpx.MockTransport(answer))
    path = httpx.URL(url).path.rstrip("/")
    assert connector.fetch(f"{path}/data/local-files/?d=some%20folder/a%26b.png&path=1") == b"content"
    assert asked[0].params["d"] == "some folder/a&b.png"
    assert connector.fetch(f"{url}/data/upload/1/a%20b.png") == b"content"
    assert asked[1].path.endswith("/data/upload/1/a b.png")
    for address in ("/data/", "photos/data/upload/a.png", "http://labels.example/data/upload/a.png", "/api/users/"):
        assert not connector.serves(address), address
