"""What `compose.yaml` does before the services: `python prepare.py secrets`, `label-studio COMMAND...`, `project`.

    secrets         makes a random secret in each file that is not there yet, readable by its group
    label-studio    starts Label Studio with its secrets, which it takes from its environment alone
    project         a first project in Label Studio with a few texts, and its hitl.toml; nothing where that is there

Only `project` needs hitl; the others run on any Python 3.
"""

import json
import os
import secrets
import sys
from pathlib import Path

SECRETS = Path(os.environ.get("SECRETS", "/run/secrets/hitl"))
RANDOM = (
    "postgres-password",
    "label-studio-password",
    "label-studio-token",
    "webhook-secret",
    "admin-password",
)


def make_secrets() -> None:
    """Files in a volume that services mount read-only; the address of the store is made of one of them."""
    for name in RANDOM:
        keep(name, secrets.token_hex(20))
    keep("store", f"postgresql://hitl:{read('postgres-password')}@{os.environ['STORE_SERVER']}/hitl")


def keep(name: str, content: str) -> None:
    """Write a secret that is not there yet, whole or not at all."""
    path, new = SECRETS / name, SECRETS / f".{name}"
    if not path.exists():
        new.write_text(content)
        new.chmod(0o440)
        new.rename(path)


def read(name: str) -> str:
    """Return the secret of this name."""
    return (SECRETS / name).read_text().strip()


def start_label_studio(command: list[str]) -> None:
    """Become Label Studio, with an administrator whose token hitl knows."""
    os.environ["LABEL_STUDIO_USER_TOKEN"] = read("label-studio-token")
    os.environ["LABEL_STUDIO_PASSWORD"] = read("label-studio-password")
    os.environ["POSTGRE_PASSWORD"] = read("postgres-password")
    os.execvp(command[0], command)


def make_project(config: Path) -> None:
    """Create a project to begin with, and hitl.toml for it."""
    if config.exists():
        print(f"{config} is there already")
        return
    from hitl.connectors.label_studio import LabelStudio
    from hitl.connectors.label_studio.client import Client
    from hitl.settings import new_settings

    url, token, here = os.environ["LABEL_STUDIO_URL"], read("label-studio-token"), Path(__file__).parent
    number = LabelStudio.create_project(url, token, "Reviews", (here / "labels.xml").read_text())
    Client(url, token).post(f"/api/projects/{number}/import", json.loads((here / "tasks.json").read_text()))
    source = {"kind": "label-studio", "url": url, "project": number}
    new_settings.write(config, "reviews", source, "sqlite:///.hitl/hitl.db", [])  # HITL_STORE_FILE says otherwise
    print(f"wrote {config} for project {number} of {url}")


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "secrets":
        make_secrets()
    elif what == "label-studio":
        start_label_studio(rest)
    else:
        make_project(Path(os.environ["HITL_CONFIG"]))
