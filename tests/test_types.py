"""Type checkers see what a user's script gets: real types at the public face, and names that do not exist as errors."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = """\
import pandas as pd
import hitl

frame = pd.DataFrame({"item": ["a"], "annotator": ["ann"], "label": ["cat"]})
found = hitl.combine(frame, truth={"a": "cat"}, method=hitl.models.DawidSkene())
reveal_type(found)
reveal_type(found["a"].label)
reveal_type(found.confidence)
reveal_type(found.annotators.frame())
reveal_type(hitl.Aggregator().fit_predict(frame))
reveal_type(hitl.models.DawidSkene().smoothing)
reveal_type(hitl.score.accuracy)
reveal_type(hitl.sklearn.CrowdClassifier().predict_proba([[1.0]]))
hitl.combined
hitl.models.DawidSkeen
hitl.combine(3)
hitl.combine(frame, method=3)
"""
EXPECTED = [
    (6, "hitl.consensus.Consensus"),
    (7, "str | int"),
    (8, r"numpy.ndarray\[.*float64.*\]"),
    (9, "pandas.*DataFrame"),
    (10, r"pandas.*Series\[Any\]"),
    (11, "float"),
    (12, r"def \(probabilities: numpy.*\) -> float"),
    (13, r"numpy.ndarray\[.*float64.*\]"),
    (14, 'Module has no attribute "combined"'),
    (15, 'Module has no attribute "DawidSkeen"'),
    (16, 'Argument 1 to "combine" has incompatible type "int"'),
    (17, 'Argument "method" to "combine" has incompatible type "int"'),
]


@pytest.mark.journey  # mypy from an empty cache takes a minute
def test_a_script_of_a_user_is_checked(tmp_path: Path) -> None:
    package = tmp_path / "hitl"  # as it is installed: three of its packages lie beside it here
    package.mkdir()
    for path in (ROOT / "hitl").iterdir():
        (package / path.name).symlink_to(path)
    for name in ("active", "connectors", "models"):
        (package / name).symlink_to(ROOT / name)
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--cache-dir",
        "cache",
        "--follow-untyped-imports",
        "script.py",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("script.py:")]
    for number, words in EXPECTED:
        assert any(re.match(rf"script.py:{number}: .*{words}", line) for line in lines), f"{number}: {done.stdout}"
