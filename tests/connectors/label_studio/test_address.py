"""Addresses of projects as they are pasted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitl.connectors.label_studio import LabelStudio
from hitl.connectors.label_studio.address import read_address
from hitl.errors import BadSettings

SERVERS = ("http://localhost", "https://ls.example.com", "http://127.0.0.1", "http://[::1]", "http://[2001:db8::7]")
PORTS = ("", ":8080", ":65535")
FOLDERS = ("", "/ls", "/apps/label-studio", "/projects-of/us")
PAGES = ("", "/", "/data", "/data/", "/settings", "/settings/labeling/", "/data/import", "/settings/ml?x=/projects/9")
ENDS = ("", "?tab=3&task=77", "#task", "?next", "?q=a%20b#c")
AROUND = ("", " ", "\n", "\t", "\u200b", "\ufeff", "\xa0", "<", '"', "`")
pick = st.sampled_from


@given(pick(SERVERS), pick(PORTS), pick(FOLDERS), st.integers(1, 10**12), pick(PAGES), pick(ENDS), pick(AROUND))
def test_every_page_of_a_project_names_it(
    server: str, port: str, folder: str, number: int, page: str, end: str, around: str
) -> None:
    address, expected = f"{server}{port}{folder}", number
    for shape in ("/projects/{}{}", "/api/projects/{}{}"):
        pasted = f"{around}{address}{shape.format(number, page)}{end if '?' not in page else ''}{around}"
        assert read_address(pasted) == (address, expected)
    assert read_address(f"{address}/user/login/?next={folder}/projects/{number}/data") == (address, number)
    assert read_address(f"{address}/projects/{end}") == (address, None)
    assert read_address(f"{address}/") == (address, None)


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("localhost:8080/projects/3/data", "http://localhost:8080"),
        ("[::1]:8080/projects/3", "http://[::1]:8080"),
        ("10.0.0.7/projects/3", "http://10.0.0.7"),
        ("LS.Example.com/projects/3/data?tab=1", "https://ls.example.com"),
        ("//ls.example.com/projects/3", "https://ls.example.com"),
        ("HTTPS://ls.example.com/projects/3", "https://ls.example.com"),
    ],
)
def test_a_missing_scheme_is_added(text: str, server: str) -> None:
    assert read_address(text) == (server, 3)


@pytest.mark.parametrize(
    "text",
    ["", "  ", "ftp://ls.example.com", "http://", "http://[::1", "http://x:port/", "http://x:99999", "http://a b"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadSettings, match="expected the address of a Label Studio"):
        read_address(text)


def test_a_connector_takes_a_pasted_address_of_its_own_project() -> None:
    assert LabelStudio("http://localhost/ls/projects/3/data", "token", 3).place == "http://localhost/ls, project 3"
    with pytest.raises(BadSettings, match=r"source\.url is the address of project 3, and source\.project is 4"):
        LabelStudio("http://localhost/projects/3", "token", 4)
