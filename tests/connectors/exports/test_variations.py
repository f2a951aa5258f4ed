"""Every importer reads its export alike in ten and more forms in which tools, people and spreadsheets save it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hitl.connectors.catalog import IMPORTERS
from hitl.connectors.exports import read_export
from hitl.connectors.exports.labels import Labels
from tests.connectors.exports.reading import COLUMNS, answers, as_text
from tests.connectors.exports.test_json_exports import text
from tests.connectors.exports.test_table_exports import cvat, image
from tests.connectors.exports.test_trace_exports import EXPORTS as TRACES

FOLDER = Path(__file__).parents[2] / "data" / "exports"
EXPORTS = {path.name: path.read_text() for path in FOLDER.iterdir()}
EXPORTS["doccano.jsonl"] = "\n".join(json.dumps(text(n, label=["no" if n % 3 else "yes"])) for n in range(6)) + "\n"
EXPORTS["cvat.xml"] = cvat(*(image("no" if n % 3 else "yes", name=f"{n}.jpg") for n in range(6)))
EXPORTS |= {name: as_text(records, Path(name).suffix) for name, records in TRACES.items()}
NEEDED = {
    "appen.csv": "_unit_id _worker_id _tainted is_it_relevant orig__golden is_it_relevant_gold",
    "argilla.json": "id status fields responses suggestions",
    "argilla_flat.jsonl": "id status label.responses label.responses.users label.responses.status label.suggestion",
    "crowdkit.csv": "task worker label",
    "doccano.jsonl": "id text label",
    "groundtruth.manifest": "source-ref pets pets-metadata",
    "gt_consolidation.json": "datasetObjectId annotations",
    "labelbox.ndjson": "data_row projects",
    "langfuse.csv": "traceId source name dataType stringValue value authorUserName",
    "langsmith.jsonl": "run_id key value feedback_source",
    "ls_csv.csv": "id annotator annotation_id lead_time mood",
    "ls_export.json": "id data annotations predictions",
    "ls_export.jsonl": "id data annotations predictions",
    "ls_min.json": "id annotator annotation_id lead_time mood",
    "ls_old.json": "id data completions",
    "mturk.csv": "HITId WorkerId AssignmentStatus Answer.label",
    "opik.json": "id feedback_scores",
    "prodigy.jsonl": "_input_hash _view_id options accept answer _annotator_id",
    "toloka.tsv": "OUTPUT:result GOLDEN:result ASSIGNMENT:task_id ASSIGNMENT:worker_id ASSIGNMENT:status",
    "zooniverse.csv": "classification_id user_name workflow_id gold_standard annotations subject_data subject_ids",
}
"""Fields without which the export would say something else. Others may be missing."""

Records = list[dict[str, Any]]
Files = dict[str, bytes]


def parsed(name: str) -> Records:
    if Path(name).suffix in (".csv", ".tsv"):
        return list(csv.DictReader(io.StringIO(EXPORTS[name]), delimiter="\t" if name.endswith(".tsv") else ","))
    if name.endswith(".json"):
        return list(json.loads(EXPORTS[name]))
    return [json.loads(line) for line in EXPORTS[name].splitlines()]


def table(records: Records, separator: str = ",", **more: Any) -> bytes:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(records[0]), delimiter=separator, **more)
    writer.writeheader()
    writer.writerows(records)
    return file.getvalue().encode()


def saved(name: str, records: Records) -> Files:
    """The records in the form of the file of this name."""
    if Path(name).suffix in (".csv", ".tsv"):
        return {name: table(records, "\t" if name.endswith(".tsv") else ",")}
    lines = [json.dumps(one, ensure_ascii=False) for one in records]
    return {name: (f"[{', '.join(lines)}]" if name.endswith(".json") else "\n".join(lines) + "\n").encode()}


def reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reversed_keys(inner) for key, inner in reversed(value.items())}
    return [reversed_keys(inner) for inner in value] if isinstance(value, list) else value


def zipped(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
        archive.writestr("__MACOSX/._" + name, b"\x00")
    return file.getvalue()


def text_of(name: str) -> bytes:
    return EXPORTS[name].encode()


Variation = Callable[[str], Files]
ANY: dict[str, Variation] = {
    "byte order mark": lambda name: {name: b"\xef\xbb\xbf" + text_of(name)},
    "Windows lines": lambda name: {name: re.sub(r"(?<!\r)\n", "\r\n", EXPORTS[name]).encode()},
    "empty lines at the end": lambda name: {name: text_of(name) + b"\n\n\n"},
    "gz": lambda name: {f"{name}.gz": gzip.compress(text_of(name))},
}
RECORDS: dict[str, Variation] = {
    "fields in another order": lambda name: saved(name, [reversed_keys(one) for one in parsed(name)]),
    "more fields": lambda name: saved(name, [{"über": "x", **one, "note": "a, b"} for one in parsed(name)]),
    "only what is needed": lambda name: saved(
        name, [{key: one[key] for key in one if key in NEEDED[name].split()} for one in parsed(name)]
    ),
    "records in another order": lambda name: saved(name, parsed(name)[::-1]),
}
TABLE: dict[str, Variation] = {
    "semicolons": lambda name: {"a.csv": table(parsed(name), ";")},
    "tabs": lambda name: {"a.tsv": table(parsed(name), "\t")},
    "all in quotes": lambda name: {"a.csv": table(parsed(name), quoting=csv.QUOTE_ALL)},
    "JSON Lines": lambda name: {"a.jsonl": "\n".join(map(json.dumps, parsed(name))).encode()},
}
JSON: dict[str, Variation] = {
    "a list": lambda name: {"a.json": json.dumps(parsed(name)).encode()},
    "an indented list": lambda name: {"a.json": json.dumps(parsed(name), indent=2).encode()},
    "lines with empty ones": lambda name: {"a.jsonl": "\n\n".join(map(json.dumps, parsed(name))).encode()},
    "zip": lambda name: {"a.zip": zipped(name, text_of(name))},
}
XML: dict[str, Variation] = {
    "indented": lambda name: {name: EXPORTS[name].replace("><", ">\n  <").encode()},
    "comments": lambda name: {name: EXPORTS[name].replace("<tag", "<!-- a tag --><tag").encode()},
    "attributes in another order": lambda name: {
        name: EXPORTS[name].replace('id="0" name=', 'subset="train" name=').encode()
    },
    "single quotes": lambda name: {name: EXPORTS[name].replace('"', "'").encode()},
    "more elements": lambda name: {name: EXPORTS[name].replace("<image", "<links/><image").encode()},
    "zip": JSON["zip"],
}


def variations(name: str) -> dict[str, Variation]:
    if name.endswith(".xml"):
        return ANY | XML
    return ANY | RECORDS | (TABLE if Path(name).suffix in (".csv", ".tsv") else JSON)


def labels_of(folder: Path, files: Files) -> Labels:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    labels = read_export(folder / next(iter(files)), COLUMNS)
    assert labels is not None
    return labels


def read(folder: Path, files: Files) -> dict[tuple[str, str | None], str]:
    return answers(labels_of(folder, files))


def test_every_importer_has_ten_variations(tmp_path: Path) -> None:
    said = [labels_of(tmp_path, {name: text_of(name)}).summary for name in EXPORTS]
    titles = {IMPORTERS.load(name).title for name in IMPORTERS.own}
    assert {title for title in titles if any(f"read as {title}:" in line for line in said)} == titles
    assert {*NEEDED, "cvat.xml"} == {*EXPORTS}
    assert min(len(variations(name)) for name in EXPORTS) + 1 >= 10, "with that of other letters"


@pytest.mark.parametrize(
    ("name", "variation"), [(name, variation) for name in sorted(EXPORTS) for variation in variations(name)]
)
def test_however_an_export_was_saved_it_says_the_same(tmp_path: Path, name: str, variation: str) -> None:
    expected = read(tmp_path, {name: text_of(name)})
    found = read(tmp_path, variations(name)[variation](name))
    if name == "doccano.jsonl":  # its annotator is the name of the file
        found, expected = ({item: label for (item, _), label in pairs.items()} for pairs in (found, expected))
    assert found == expected


@pytest.mark.parametrize("name", sorted(EXPORTS))
def test_labels_may_have_any_letters(tmp_path: Path, name: str) -> None:
    expected = read(tmp_path, {name: text_of(name)})
    label = min(expected.values())
    other = "größe 猫 🎉"
    content = re.sub(rf"(?<![\w-]){label}(?![\w-])", other, EXPORTS[name])
    assert read(tmp_path, {name: content.encode()}) == {
        pair: other if answer == label else answer for pair, answer in expected.items()
    }
