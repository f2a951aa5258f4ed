"""A stand-in for servers of the OpenAI protocol, on the loopback interface. Each text has its script."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = (120, 4)
"""Input and output tokens that a reply claims, unless it says otherwise."""


@dataclass(frozen=True)
class Answer:
    """A reply: its text, token -> log-probability at its first token (if not None), its status, and tokens."""

    text: str = "A 90"
    alternatives: dict[str, float] | None = None
    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    usage: tuple[int, int] | None = USAGE


@dataclass
class Chat:
    """What the server answers to a text, and what it was asked. The last answer of a script is repeated."""

    scripts: dict[str, list[Answer]] = field(default_factory=dict)
    refuses: Callable[[dict[str, Any]], str | None] = lambda request: None
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    hold: Callable[[str], None] = lambda text: None
    url: str = ""
    lock: Any = field(default_factory=threading.Lock)

    def asked(self) -> Counter[str]:
        """How often each text was asked."""
        return Counter(text_of(request) for request in self.requests)

    def answer(self, request: dict[str, Any]) -> Answer:
        text = text_of(request)
        with self.lock:
            refusal = self.refuses(request)
            if refusal is not None:
                return Answer(status=400, body={"error": {"message": refusal, "type": "invalid_request_error"}})
            self.requests.append(request)
            script = self.scripts.get(text, [Answer()])
            answer = script.pop(0) if len(script) > 1 else script[0]
        self.hold(text)
        return answer


def text_of(request: dict[str, Any]) -> str:
    content = request["messages"][1]["content"]
    found = re.search(r"text: (.*)", content if isinstance(content, str) else content[0].get("text", ""))
    return found[1] if found else ""


def completion(answer: Answer) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant"}}
    choice["message"]["content"] = answer.text
    if answer.alternatives is not None:
        tokens = deque(re.findall(r"\S+\s*|\s+", answer.text))
        first = re.match(r"\s*\S", tokens.popleft())
        assert first is not None
        best = first[0]
        every = [{"token": token, "logprob": value, "bytes": None} for token, value in answer.alternatives.items()]
        content = [{"token": best, "logprob": answer.alternatives[best], "bytes": None, "top_logprobs": every}]
        choice["logprobs"] = {"content": content}
    usage = None
    if answer.usage is not None:
        usage = {"prompt_tokens": answer.usage[0], "completion_tokens": answer.usage[1], "total_tokens": 0}
    return {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}


@contextmanager
def serving(chat: Chat) -> Iterator[Chat]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/chat/completions"
            chat.keys.add(self.headers["Authorization"])
            answer = chat.answer(json.loads(content))
            if answer.seconds:
                threading.Event().wait(answer.seconds)
            body = completion(answer) if answer.body is None else answer.body
            sent = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            try:
                self.send_response(answer.status)
                for name, value in (answer.headers | {"Content-Length": str(len(sent))}).items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(sent)
            except OSError:  # the client was killed, or has given up
                self.close_connection = True

        def log_message(self, *words: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A killed client is no error of the server."""

    with Server(("127.0.0.1", 0), Handler) as server:
        chat.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield chat
        server.shutdown()
        thread.join()
