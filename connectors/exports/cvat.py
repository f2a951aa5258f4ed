"""CVAT for images: the XML file, or the .zip file with it. Tags of images are read, shapes are not.

CVAT does not say who set a tag. So the annotator is the assignee of the job or task, or else the name of the file; a
.zip file may hold the files of several annotators.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hitl.connectors.exports.export import Answer, Export
from hitl.errors import BadTable
from hitl.tables.columns import BOXES_ELSEWHERE

AUTOMATIC = ("auto", "consensus")
"""Sources of tags that no person has set."""


class CVAT:
    """Tags of CVAT."""

    title = "CVAT for images XML"
    items, annotators = ("image", "name"), ("annotator", "assignee, or name of the file")

    def matches(self, kind: str, names: frozenset[str], first: Sequence[Mapping[str, Any]]) -> bool:
        """Return True for the elements of CVAT."""
        tags = {element.get("tag") for element in first}
        return kind == "xml" and not {"meta", "version"}.isdisjoint(tags) and not {"image", "track"}.isdisjoint(tags)

    def answers(self, export: Export) -> Iterator[Answer]:
        """Yield the tags of each image."""
        assignees: dict[str, str] = {}
        tagged = False
        for record in export.records():
            element = record.fields
            if element["tag"] == "meta":
                assignees[record.source] = _assignee(element)
            elif element["tag"] == "image":
                with export.part(record):
                    item = export.item_of(element, element.get("name"))
                    inside = element["inside"]
                    tags = [tag for tag in inside if tag["tag"] == "tag" and tag.get("source") not in AUTOMATIC]
                    automatic = sum(tag["tag"] == "tag" for tag in inside) - len(tags)
                    export.skipped["tag that was set automatically|tags that were set automatically"] += automatic
                    export.skipped["shape"] += sum(tag["tag"] != "tag" for tag in inside)
                    tagged |= bool(tags)
                    who = assignees.get(record.source) or record.source
                    yield Answer(item, "tag", who, tuple(tag["label"] for tag in tags))
            elif element["tag"] == "track":
                export.skipped["track"] += 1
        if not tagged and (export.skipped["shape"] or export.skipped["track"]):
            raise BadTable(
                f"{export.path}: CVAT XML with shapes and no tags. Only tags, labels of a whole image, are read. "
                f"{BOXES_ELSEWHERE}"
            )


def _assignee(meta: Mapping[str, Any]) -> str:
    """Return the name of the assignee in the description of a job or task, or an empty text."""
    for inner in meta["inside"]:
        if inner["tag"] == "assignee":
            names = [each["text"] for each in inner["inside"] if each["tag"] == "username"]
            return str(names[0] if names else inner["text"])
        if found := _assignee(inner):
            return found
    return ""
