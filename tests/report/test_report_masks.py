"""The report of images that annotators drew over: its pictures are those of the masks."""

from __future__ import annotations

import base64
import html
import re
from io import BytesIO

import numpy as np
import pytest

from hitl.report.contents import QuestionPage, Report
from hitl.report.page import render
from hitl.report.parts.pictures import SIDE, drawn_images
from tests.kinds.simulated_masks import crowd
from tests.kinds.stored import combined
from tests.kinds.test_masks import answer, evidence


def page(size: int = 200) -> tuple[QuestionPage, list[np.ndarray]]:  # type: ignore[type-arg]
    _, masks = crowd("missed", 3, size, 3, 3)
    rows = [(item, str(k), answer("dog", masks[i][k] > 0)) for i, item in enumerate("abc") for k in range(3)]
    known = evidence(rows, items="abcd")
    return QuestionPage("tag", known, combined(known)), masks


def test_pictures_are_the_masks() -> None:
    image = pytest.importorskip("PIL.Image")
    asked, masks = page()
    shown = {str(one.item): one for one in drawn_images(asked).drawn}
    assert set(shown) == set("abc"), "nobody has answered the last one"
    for i, item in enumerate("abc"):
        for k, (who, address) in enumerate(shown[item].annotators):
            assert who == ("0", "ann", "2")[k]
            read = image.open(BytesIO(base64.b64decode(address.partition(",")[2])))
            assert max(read.size) <= SIDE
            inside = (np.asarray(read.convert("RGB")) == (0xD5, 0x5E, 0x00)).all(axis=2)
            np.testing.assert_array_equal(inside, masks[i][k][::2, ::2] > 0)


def test_the_page_has_them() -> None:
    asked, _ = page(64)
    text = html.unescape(render(Report("p", (asked,))))
    assert "Images, the least sure first" in text
    assert len(re.findall(r'<img src="data:image/png;base64,', text)) == 3 * (2 + 3)
    assert "#d55e00" in text
