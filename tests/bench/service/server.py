"""A service in a process of its own: `python -m tests.bench.service.server hitl.toml` prints its port and serves."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import uvicorn

from hitl.service.web.live import Live
from hitl.service.web.projects import Projects
from tests.bench.service import platform
from tests.service.web.live.serving import application


def main() -> None:
    """Serve until killed."""
    if "--growing" in sys.argv:
        platform.install()
    projects = Projects([Path(sys.argv[1])])
    live = Live(projects)
    live.start()
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        print(listener.getsockname()[1], flush=True)
        server = uvicorn.Server(uvicorn.Config(application(live), log_level="warning", access_log=False))
        server.run(sockets=[listener])
    live.stop()


if __name__ == "__main__":
    main()
