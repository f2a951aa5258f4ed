"""`hitl predict --model openai:NAME`: replies of a stand-in server become probabilities, each paid once."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hitl.errors import BadSettings
from hitl.models.predictors import replies
from hitl.models.predictors.inputs import Batch
from hitl.models.predictors.language import LanguageModel
from hitl.tables.read import read_table
from tests.command_line import COMMAND, Run
from tests.models.predictors.chat_server import USAGE, Answer, Chat, serving

KEY = "sk-very-secret-0123456789"
RETRY = {"Retry-After-Ms": "1"}


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[Chat]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving(Chat()) as chat:
        yield chat


Ask = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def ask(run: Run, chat: Chat, tmp_path: Path) -> Ask:
    """`ask(["one", "two"])` predicts these texts with three classes -> exit code, --json, standard error."""

    def asked(texts: list[str], *more: str, classes: str | None = "cat,dog,owl") -> tuple[int, dict[str, Any], str]:
        columns = () if "--features" in more else ("--text", "text")
        lines = [f"i{n},{json.dumps(text) if text else ''},secret{n}" for n, text in enumerate(texts)]
        (tmp_path / "items.csv").write_text("item,text,other\n" + "\n".join(lines) + "\n")
        named = () if classes is None else ("--classes", classes)
        flags = ["--model", "openai:m", "--base-url", chat.url, *columns, *named, "-o", "p.csv", *more]
        code, out, err = run("predict", "items.csv", *flags, "--json")
        return code, json.loads(out) if out else {}, err

    return asked


def rows(path: str = "p.csv") -> list[list[float]]:
    table = read_table(path)
    names = [name for name in table.column_names if name.startswith("p_")]
    return [[math.nan if value in (None, "") else float(value) for value in row.values()]
            for row in table.select(names).to_pylist()]  # fmt: skip


def test_log_probabilities_of_the_answer(ask: Ask, chat: Chat) -> None:
    one = {"A": math.log(0.6), " A": math.log(0.1), "B": math.log(0.2), "C": math.log(0.05), "The": math.log(0.03)}
    two = {"B": math.log(0.9), "The": math.log(0.04)}  # .06 is left for A and C, at most .04 each
    three = {"A": math.log(0.9), "The": math.log(0.01)}  # .09 is left, at most .01 each
    four = {"A": math.nan, "B": math.log(0.01)}  # the stated confidence counts
    chat.scripts = {text: [Answer(f"{next(iter(tokens))} 55", tokens)] for text, tokens in
                    (("one", one), ("two", two), ("three", three), ("four", four))}  # fmt: skip
    code, data, err = ask(["one", "two", "three", "four"])
    assert (code, err) == (0, "")
    expected = [[0.7 / 0.95, 0.2 / 0.95, 0.05 / 0.95], [0.03 / 0.96, 0.9 / 0.96, 0.03 / 0.96]]
    expected += [[0.9 / 0.92, 0.01 / 0.92, 0.01 / 0.92], [0.55, 0.225, 0.225]]
    np.testing.assert_allclose(rows(), expected, rtol=1e-12)
    assert data["usage"] | {"version": ""} == {
        **{"version": "", "replies": 4, "stored": 0, "cost": None},
        **{"input_tokens": 4 * USAGE[0], "output_tokens": 4 * USAGE[1]},
    }
    request = chat.requests[0]
    assert (request["logprobs"], request["top_logprobs"], request["temperature"]) == (True, 20, 0)
    assert "A: cat\nB: dog\nC: owl\n" in request["messages"][0]["content"]
    assert "secret" not in json.dumps(chat.requests)  # only the named column is sent
    assert chat.keys == {f"Bearer {KEY}"}


STATED = {
    "B 80": [0.1, 0.8, 0.1],
    "b. 80%\nBecause it barks.": [0.1, 0.8, 0.1],
    "**C** (owl), confidence: 0.6": [0.2, 0.2, 0.6],
    "dog 70": [0.15, 0.7, 0.15],
    "A 100": [0.99, 0.005, 0.005],
    '{"answer": "A", "confidence": 40}': [0.4, 0.3, 0.3],
    "<think>A 20 or B</think>\n\nB 60": [0.2, 0.6, 0.2],
}
WITHOUT = ["A dog is seen", "B: cat 90", "D 90", "I cannot help with that"]


def test_stated_confidence_and_replies_that_name_no_class(ask: Ask, chat: Chat) -> None:
    texts = [f"t{n}" for n in range(len(STATED) + len(WITHOUT))]
    chat.scripts = {text: [Answer(reply)] for text, reply in zip(texts, [*STATED, *WITHOUT], strict=True)}
    code, data, err = ask(texts)
    assert (code, err) == (0, "")
    np.testing.assert_allclose(rows()[: len(STATED)], list(STATED.values()), rtol=1e-12)
    assert np.isnan(rows()[len(STATED) :]).all()
    assert data["silent"] == len(WITHOUT)
    (warning,) = data["warnings"]
    assert warning.startswith("4 items have no answer and no probabilities (i7: the reply names no class: 'A dog is")
    assert {chat.asked()[text] for text in texts[len(STATED) :]} == {2}  # once more, then given up
    assert ask(texts)[1]["usage"]["replies"] == len(STATED) + 2 * len(WITHOUT)  # and not paid for again


def test_samples_where_no_confidence_is_stated(ask: Ask, chat: Chat) -> None:
    chat.scripts = {
        "bare": [Answer("B"), *map(Answer, ("A", "B 3", "owl", "B", "what?"))],
        "incoherent": [Answer("A 5"), Answer("A")],
        "late": [Answer("Well, B"), Answer("B")],
        "empty": [Answer("")],
    }
    code, data, _ = ask(["bare", "incoherent", "late", "empty"])
    expected = [
        [4 / 3 / 5, 7 / 3 / 5, 4 / 3 / 5],
        [16 / 3 / 6, 1 / 3 / 6, 1 / 3 / 6],
        [1 / 3 / 6, 16 / 3 / 6, 1 / 3 / 6],
    ]
    np.testing.assert_allclose(rows()[:3], expected, rtol=1e-12)
    assert np.isnan(rows()[3]).all()
    assert "i3: the reply is empty; models that reason need a larger --max-tokens" in data["warnings"][0]
    assert chat.asked() == {"bare": 6, "incoherent": 6, "late": 6, "empty": 1}
    assert [request["temperature"] for request in chat.requests if "bare" in str(request)] == [0, 1, 1, 1, 1, 1]
    ask(["bare"], "--samples", "7")
    assert chat.asked()["bare"] == 8  # only what is new
    assert code == 0


def test_parameters_that_a_server_refuses_are_left_out(ask: Ask, chat: Chat) -> None:
    refused: list[str] = []

    def refuses(request: dict[str, Any]) -> str | None:
        problems = {
            "top_logprobs must be at most 5": request.get("top_logprobs", 0) > 5,
            "logprobs are not supported with reasoning models": "logprobs" in request,
            "use 'max_completion_tokens' instead of 'max_tokens'": "max_tokens" in request,
            "'temperature' does not support 0": "temperature" in request,
        }
        refused.extend(named := [problem for problem, there in problems.items() if there][:1])
        return named[0] if named else None

    chat.refuses = refuses
    code, _, _ = ask(["one", "two"], "--concurrency", "1", "--max-tokens", "3000")
    assert (code, rows()) == (0, [pytest.approx([0.9, 0.05, 0.05])] * 2)
    assert (len(refused), len(chat.requests)) == (4, 2)
    assert chat.requests[1]["max_completion_tokens"] == 3000
    chat.refuses = lambda request: "this text is too long" if "three" in str(request) else None
    code, data, _ = ask(["one", "two", "three"], "--max-tokens", "3000")
    assert (code, chat.asked()) == (0, {"one": 1, "two": 1})
    assert "i2: the server 127.0.0.1 refuses it: Error code: 400" in data["warnings"][0]
    assert "this text is too long" in data["warnings"][0]


def test_a_slow_server_is_asked_again(ask: Ask, chat: Chat) -> None:
    chat.scripts = {"slow": [Answer(seconds=2.0), Answer("C 80")]}
    code, data, _ = ask(["slow"], "--timeout", "1")
    assert (code, data["warnings"], rows()) == (0, [], [pytest.approx([0.1, 0.1, 0.8])])
    assert chat.asked()["slow"] >= 2


def test_a_server_that_fails_for_a_while(ask: Ask, chat: Chat) -> None:
    down = [Answer(status=status, body="{}", headers=RETRY) for status in (429, 500, 503)]
    chat.scripts = {
        "limited": [*down, Answer("B 80")],
        "malformed": [Answer(body='{"choices": [{"mess')],
        "strange": [Answer(body={"choices": None})],
        "list": [Answer(body="[1]")],
        "endless": [Answer(usage=(120, math.inf))],
        "null": [Answer("A 90", {"A": None})],
    }
    code, data, err = ask([*chat.scripts, "fine"])
    assert (code, err) == (0, "")
    assert rows()[0] == pytest.approx([0.1, 0.8, 0.1])
    assert np.isnan(rows()[1:6]).all()
    assert rows()[6] == pytest.approx([0.9, 0.05, 0.05])
    assert chat.asked() == dict.fromkeys(chat.scripts, 1) | {"limited": 4, "fine": 1}
    (warning,) = data["warnings"]
    assert "5 items have no answer" in warning
    assert "i2: the server 127.0.0.1 does not answer: its reply is not of the OpenAI protocol" in warning
    texts, chat.scripts = [*chat.scripts, "fine"], {}  # now it works: only those without a reply are asked
    code, data, err = ask(texts)
    assert (code, data["warnings"], data["usage"]["replies"], data["usage"]["stored"]) == (0, [], 7, 2)
    assert chat.asked() == dict.fromkeys(texts, 2) | {"limited": 4, "fine": 1}


def test_a_server_that_stays_down_stops_the_run(ask: Ask, chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "RETRIES", 0)
    texts = [f"t{n}" for n in range(60)]
    down = [[Answer(status=status, body="{}")] for status in (429, 503)]
    chat.scripts = {text: down[n % 2] for n, text in enumerate(texts) if n >= 20}
    code, _, err = ask(texts, "--concurrency", "2")
    assert code == 69
    assert "the server 127.0.0.1 no longer answers: " in err
    assert len(chat.requests) <= 20 + 2 * replies.MAX_FAILURES  # a slow reply to t19 begins the count anew
    assert not Path("p.csv").exists()
    chat.scripts = {}
    assert ask(texts)[1]["usage"]["stored"] == 20
    assert {chat.asked()[text] for text in texts[:20]} == {1}
    chat.scripts = {text: down[1] for n, text in enumerate(texts) if n % 2}  # failures in a row count, not all of them
    code, data, _ = ask(texts, "--concurrency", "1", "--max-tokens", "9")
    assert (code, data["silent"]) == (0, 30)


def test_the_key_is_never_shown_or_stored(ask: Ask, chat: Chat, tmp_path: Path) -> None:
    body = {"error": {"message": f"Incorrect API key provided: {KEY}."}}
    chat.scripts = {
        "bad": [Answer(status=401, body=body)],
        "echo": [Answer(f"A {KEY}")],
        "no": [Answer(KEY, status=422)],
    }
    code, _, err = ask(["bad", "x"], "--concurrency", "1")
    assert code == 78
    assert "refuses all requests for 'm': 401" in err
    assert len(chat.requests) == 1
    code, data, more = ask(["echo", "no"])
    assert code == 0
    assert KEY not in err + more + json.dumps(data)
    model = LanguageModel(replies.Server(chat.url, "m", KEY), tmp_path / "r", ("cat", "dog"))
    with pytest.raises(BadSettings, match=r"provided: \*\*\*") as raised:
        model.predict(Batch(0, ["i"], "fields", [{"text": "bad"}]))
    assert KEY not in str(raised.value)
    assert not [path for path in tmp_path.iterdir() if KEY.encode() in path.read_bytes()]


def test_no_text_leaves_without_its_server(run: Run, ask: Ask, chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    (Path.cwd() / "t.csv").write_text("item,text\na,one\n")
    monkeypatch.setenv("OPENAI_BASE_URL", chat.url)
    flags = ["-m", "openai:m", "--classes", "cat,dog", "-o", "p.csv"]
    code, _, err = run("predict", "t.csv", *flags, "--text", "text")
    assert code == 78
    assert "sends the text of items to a server; name it with --base-url" in err
    code, _, err = run("predict", "t.csv", *flags, "--base-url", chat.url)
    assert code == 78
    assert "name the columns to send" in err
    assert run("predict", "t.csv", *flags, "--base-url", "ftp://x", "--text", "text")[0] == 78
    with serving(Chat()) as other:
        address = {"Location": f"{other.url}/chat/completions"}
        chat.scripts = {"one": [Answer(status=307, body="{}", headers=address)]}
        code, _, err = ask(["one"])
        assert code == 78
        assert "refuses all requests for 'm': 307" in err
        assert other.requests == []
    monkeypatch.delenv("OPENAI_API_KEY")
    assert "OPENAI_API_KEY is not set" in ask(["one"])[2]
    monkeypatch.setitem(sys.modules, "openai", None)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert "pip install 'hitl-toolkit[llm]'" in ask(["one"])[2]
    assert len(chat.requests) == 1


def test_the_budget_is_never_exceeded(ask: Ask, chat: Chat) -> None:
    texts = [f"t{n}" for n in range(30)]
    each = (USAGE[0] * 1.0 + USAGE[1] * 10.0) / 1e6
    flags = ["--price", "1", "10", "--budget"]
    code, data, err = ask(texts, *flags, str(12.5 * each), "--concurrency", "4")
    assert (code, err) == (0, "")
    usage = data["usage"]
    assert 0 < usage["replies"] == len(chat.requests) == 30 - np.isnan(rows()).any(axis=1).sum()
    assert usage["cost"] == pytest.approx(each * usage["replies"])
    system, prompt = (message["content"] for message in chat.requests[0]["messages"])
    most = (len(system) + len(prompt) + 1 + replies.OVERHEAD + 10.0 * 64) / 1e6
    assert 12.5 * each - most - 1e-9 <= usage["cost"] <= 12.5 * each  # not a request less than could be paid
    assert f"The budget is used up: {30 - usage['replies']} items have no probabilities." in data["warnings"][0]
    again = ask(texts, *flags, str(12.5 * each))[1]["usage"]
    assert (again["replies"], again["stored"], len(chat.requests)) == (usage["replies"],) * 3
    data = ask(texts, *flags, "1")[1]
    assert (data["usage"]["replies"], data["warnings"], len(chat.requests)) == (30, [], 30)
    assert data["usage"]["cost"] == pytest.approx(30 * each)
    code, _, err = ask(texts, "--budget", "1")
    assert code == 78
    assert "--budget needs --price" in err


@pytest.mark.parametrize("counted", [True, False])
def test_requests_in_flight_count_for_the_budget(ask: Ask, chat: Chat, counted: bool) -> None:
    """Each costs the most that it can, or its server does not count, which is taken for that."""
    ask(["t0"])
    most = sum(len(message["content"]) for message in chat.requests[0]["messages"]) + replies.OVERHEAD, 64
    texts = [f"t{n}" for n in range(1, 10)]
    chat.scripts = {text: [Answer(usage=most if counted else None, seconds=0.1)] for text in texts}
    each = (most[0] + 10 * most[1]) / 1e6
    flags = ["--price", "1", "10", "--budget", str(5.9 * each + 160e-6), "--concurrency", "4"]
    code, data, _ = ask(["t0", *texts], *flags)
    assert (code, data["usage"]["replies"]) == (0, 6)
    assert data["usage"]["cost"] == pytest.approx(5 * each + 160e-6)


def test_a_killed_run_pays_for_no_reply_twice(ask: Ask, chat: Chat, tmp_path: Path) -> None:
    texts = [f"t{n}" for n in range(40)]
    ask(texts[:1])
    chat.requests.clear()
    flags = ["--model", "openai:m", "--base-url", chat.url, "--text", "text", "--classes", "cat,dog,owl", "-o", "k.csv"]
    (tmp_path / "items.csv").write_text("item,text\n" + "".join(f"i{n},{text}\n" for n, text in enumerate(texts)))
    held, all_held, release = set[str](), threading.Event(), threading.Event()

    def hold(text: str) -> None:
        if int(text[1:]) >= 20:
            held.add(text)
            if len(held) == 4:
                all_held.set()
            release.wait(60)

    chat.hold = hold
    command = [sys.executable, "-c", COMMAND, "predict", "items.csv", *flags, "--concurrency", "4"]
    process = subprocess.Popen(command, cwd=tmp_path, env={**os.environ}, stdout=subprocess.DEVNULL)
    assert all_held.wait(60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    in_flight, chat.hold = set(held), lambda text: None
    release.set()
    assert not (tmp_path / "k.csv").exists()
    done = subprocess.run([*command, "--json"], cwd=tmp_path, env={**os.environ}, capture_output=True, check=True)
    assert json.loads(done.stdout)["usage"]["stored"] == 20
    assert chat.asked() == {text: 2 if text in in_flight else 1 for text in texts}
    assert rows("k.csv") == [pytest.approx([0.9, 0.05, 0.05])] * 40


def test_the_prompt_names_classes_with_guidelines_and_is_a_version(ask: Ask, chat: Chat, tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.j2"
    prompt.write_text(
        '{% set classes = {"spam": "sells something", "ham": "all else"} %}\nIs it spam?\n'
        "text: {{ item.text }}\nfrom: {{ item.other }}\n"
    )
    flags = ["--prompt", "prompt.j2", "--features", "text,other"]
    first = ask(["one", "two"], *flags, classes=None)[1]
    assert first["classes"] == ["spam", "ham"]
    request = next(request for request in chat.requests if "text: one" in str(request))
    system, content = (message["content"] for message in request["messages"])
    assert "A: spam (sells something)\nB: ham (all else)\n" in system
    assert content == "Is it spam?\ntext: one\nfrom: secret0"
    ask(["one", "two"], *flags, classes=None)
    assert chat.asked() == {"one": 1, "two": 1}
    ask(["one", "changed"], *flags, classes=None)
    assert chat.asked() == {"one": 1, "two": 1, "changed": 1}
    prompt.write_text(prompt.read_text().replace("all else", "everything else"))
    second = ask(["one", "two"], *flags, classes=None)[1]
    assert chat.asked() == {"one": 2, "two": 2, "changed": 1}
    assert (second["usage"]["replies"], second["usage"]["version"] != first["usage"]["version"]) == (2, True)
    for classes in ("cat,dog", "cat,dog", "cat,owl"):
        ask(["three"], classes=classes)
    assert chat.asked()["three"] == 2


@pytest.mark.parametrize(
    ("source", "classes", "message"),
    [
        ("{% set classes = ['a', 'b'] %}", "cat,dog", "sets the classes too"),
        ("{{ item.text }}", None, "name two classes or more"),
        ("{{ item.txt }}", "cat,dog", "prompt.j2: item 'i0': 'dict object' has no attribute 'txt'"),
        ("{% if %}", "cat,dog", "prompt.j2: line 1"),
        ("{% set classes = item.x %}", None, "expected a list of names"),
    ],
)
def test_a_wrong_prompt_is_said_before_anything_is_sent(
    ask: Ask, chat: Chat, tmp_path: Path, source: str, classes: str | None, message: str
) -> None:
    (tmp_path / "prompt.j2").write_text(source)
    code, _, err = ask(["one"], "--prompt", "prompt.j2", classes=classes)
    assert code == 78
    assert message in err
    assert chat.requests == []


@pytest.mark.parametrize("name", ["c{}", "{}"])
def test_many_classes_are_numbered_and_empty_items_are_not_sent(ask: Ask, chat: Chat, name: str) -> None:
    chat.scripts = {"one": [Answer("30 75", {"3": 0.0})]}
    code, data, _ = ask(["one", ""], classes=",".join(name.format(n) for n in range(1, 101)))
    assert (code, data["silent"], data["warnings"]) == (0, 1, [])
    assert rows()[0][29] == pytest.approx(0.75)
    assert sum(rows()[0]) == pytest.approx(1.0)
    assert (len(chat.requests), "logprobs" in chat.requests[0]) == (1, False)
    assert f"30: {name.format(30)}\n" in chat.requests[0]["messages"][0]["content"]


def test_images_are_shown_by_their_addresses(run: Run, chat: Chat, tmp_path: Path) -> None:
    photo, drawn = "https://images.example/1.jpg", "data:image/png;base64,AAAA"
    lines = [f"i1,one,{photo}", f'i2,,"{drawn}"', "i3,three,photos/3.jpg", "i4,four,"]
    (tmp_path / "items.csv").write_text("\n".join(["item,text,photo", *lines]) + "\n")
    flags = ["--model", "openai:m", "--base-url", chat.url, "--classes", "cat,dog", "-o", "p.csv", "--json"]
    code, out, _ = run("predict", "items.csv", "--text", "text", "--image", "photo", *flags)
    sent = {json.dumps(request["messages"][1]["content"]) for request in chat.requests}
    first, second = ({"type": "image_url", "image_url": {"url": address}} for address in (photo, drawn))
    said = ([{"type": "text", "text": "text: one"}, first], [{"type": "text", "text": "text:"}, second])
    assert sent == set(map(json.dumps, said))
    assert code == 0
    assert "2 items have no answer and no probabilities (i3: 'photos/3.jpg' is no address of an image" in out
    chat.requests.clear()
    run("predict", "items.csv", "--image", "photo", *flags[:-3], "-o", "q.csv")
    assert [first] in [request["messages"][1]["content"] for request in chat.requests]
    chat.requests.clear()  # one image may cost 50,000 tokens
    run("predict", "items.csv", "--image", "photo", *flags[:-3], "--price", "1", "1", "--budget", "0.04", "-o", "r.csv")
    assert chat.requests == []
