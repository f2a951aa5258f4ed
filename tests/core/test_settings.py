"""hitl.toml: what it sets reaches crew, budget and policy; bad values name their key, and no secret is shown."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from hitl import project
from hitl.errors import BadSettings
from hitl.settings import CombineSettings, Settings, new_settings
from hitl.settings.events import KINDS
from hitl.tables.limits import Limits, limits
from tests.events.receivers import OTHER, SECRET

HEAD = 'name = "x"\n[source]\nkind = "tables"\npath = "."\n'
ONE = '[[events]]\nname = "chat"\nurl = "https://hooks.example/T0/hidden-part"\n'


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HITL_EVENTS_CHAT_SECRET", raising=False)
    monkeypatch.delenv("HITL_EVENTS_CHAT_URL", raising=False)


def loaded(folder: Path, text: str) -> Settings:
    (folder / "hitl.toml").write_text(text + HEAD if text.startswith("events") else HEAD + text)
    return project.load(folder / "hitl.toml")


def test_costs_targets_and_worth_reach_the_budget(tmp_path: Path) -> None:
    budget = project.budget_of(
        loaded(tmp_path, "[budget]\ncost = 50\nanswers = 9\ntarget_accuracy = 0.97\nvalue_per_label = 2.5\n")
    )
    assert (budget.cost, budget.answers, budget.target_accuracy, budget.value_per_label) == (50, 9, 0.97, 2.5)
    plain = project.budget_of(loaded(tmp_path, ""))
    assert (plain.cost, plain.answers, plain.target_accuracy, plain.value_per_label) == (math.inf, None, None, None)


NO_ADDRESS = "this is no address that can be told"
BAD = [
    ("[budget]\ncost = -1\n", "budget.cost"),
    ("[budget]\ntarget_accuracy = 1.5\n", "budget.target_accuracy"),
    ("[budget]\nvalue_per_label = 0\n", "budget.value_per_label"),
    ("[budget]\nvalue_per_label = inf\n", "budget.value_per_label"),
    ("[budget]\nmin_labels = 11\n", "budget: .*min_labels 11 is above max_labels 10"),
    ("[budget]\nmax_labels = 99999999999\n", "budget.max_labels"),
    ("[budget]\nxyz = 3\n", r"budget.xyz: no such key; expected one of open_questions, target_confidence"),
    (
        "[budgets]\nopen_questions = 3\n",
        r"budgets: no such key; did you mean 'budget'\? expected one of name, source, st",
    ),
    ("[crew]\ncost = 0\n", "crew.cost"),
    ('[crew]\nannotators = ["ann", ""]\n', "crew.annotators.1"),
    ("[crew]\ncosts = { ann = -2 }\n", "crew.costs.ann"),
    ("[crew]\ncapacities = { ann = -2 }\n", "crew.capacities.ann"),
    ("[crew]\ncapacities = { ann = 99999999999999999999 }\n", "crew.capacities.ann"),
    (
        "[crew]\ncapacitys = 3\n",
        r"crew.capacitys: no such key; did you mean 'capacity'\? expected one of annotators, jud",
    ),
    ("[crew]\nexpire_hours = 0\n", "crew.expire_hours"),
    ('[crew]\nskill_field = ""\n', "crew.skill_field"),
    ('[crew]\nskill_field = "language"\n', "crew: .*skill_field without skills"),
    ('[crew]\nskills = { ann = "de" }\n', "crew.skills.ann"),
    ('[schedule]\nevery = "9999999d"\n', "schedule.every"),
    ("[retention]\ncycles = 99999999999999999999\n", "retention.cycles"),
    ("[learn]\nseed = 4294967296\n", "learn.seed"),
    ('[learn]\nmodel = "logistic"\n[models]\nlearned = "p.csv"\n', "models.learned: .learn. gives its"),
    ("[policy]\nnam = 'x'\n", "policy.nam"),
    ('[graph]\nfile = "g.csv"\nneighbours = 3\n', "graph: .*expected one of file and neighbours"),
    ('[graph]\nitem = "photo"\n', "graph: .*expected one of file and neighbours"),
    ("[graph]\nneighbors = 3\n", "graph.neighbors: no such key; did you mean 'neighbours'"),
    ('[features]\ntext = "a"\nimage = "b"\n', "features: .*text and image exclude each other; expected one of them"),
    ('[features]\nmodel = "tfidf"\n', "features: .*nothing to make them of; expected one of file, columns, text and"),
    ('[features]\ncolumns = ["a"]\nmodel = "tfidf"\n', "features: .*model: sees a text or an image"),
    ('[features]\nimage = "a"\n', "features: .*image: needs a model, such as 'torchvision:resnet18'"),
    (
        '[features]\ntext = "a"\nmissing = "zero"\n',
        r"features.missing: input should be 'skip' or 'refuse'",
    ),
    ('[serve]\nurl = "h.example"\n', "serve.url: this is no address of pages"),
    (ONE + "kind = 3\n", r"events.0.kind: no such key; did you mean 'kinds'\? expected one of name, url, kinds"),
    (ONE + 'kinds = ["cycle.fails"]\n', r"events.0.kinds.0: input should be 'items.decided'"),
    (ONE + "kinds = []\n", "events.0.kinds"),
    (ONE + 'template = "teams"\n', "events.0.template: input should be 'json' or 'slack'"),
    (ONE + f'secret = "{SECRET}"\n', "the secret does not belong in a file; set HITL_EVENTS_CHAT_SECRET"),
    (ONE + ONE, "events: two are called 'chat'"),
    (ONE + "".join(ONE.replace("chat", f"c{n}") for n in range(20)), "events: there are 21; expected 20 at most"),
    ('events = "https://hooks.example/hidden-part"\n', "events: "),
    ('[[events]]\nurl = "https://hooks.example/hidden-part"\n', "expected a name of small letters"),
    (ONE.replace('"chat"', '"Chat Tool"'), "expected a name of small letters"),
    (ONE.replace("https://", "ftp://"), NO_ADDRESS),
    (ONE.replace("https://", "https://me:hunter2@"), NO_ADDRESS),
    (ONE.replace("hidden-part", "hidden part"), NO_ADDRESS),
    (ONE.replace("hidden-part", "hidden-ü"), NO_ADDRESS),
    (ONE.replace("hooks.example", "hooks.example:99999"), NO_ADDRESS),
]


@pytest.mark.parametrize(("text", "key"), BAD)
def test_a_bad_value_names_its_key_and_shows_no_secret(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(BadSettings, match=key) as caught:
        loaded(tmp_path, text)
    assert not re.search(f"extra|token|hunter2|hidden|{SECRET[8:20]}", str(caught.value))


def test_what_init_writes_is_read_also_with_its_comments_taken_in(tmp_path: Path) -> None:
    path = tmp_path / "hitl.toml"
    new_settings.write(path, "x", {"kind": "tables", "path": "."}, "sqlite:///x.db", ["ann"])
    assert project.load(path).policy.name == "expected-gain"
    keys = "target_accuracy|cost|value_per_label|capacity|capacities|costs|skills|skill_field|expire_hours"
    path.write_text(re.sub(rf"^# ({keys}) = ", r"\1 = ", path.read_text(), flags=re.MULTILINE))
    read = project.load(path)
    assert (read.budget.target_accuracy, read.budget.value_per_label) == (0.97, 2.0)
    assert read.crew.costs == {"ann": 2.5}
    assert read.crew.skills == {"ann": ("de", "fr")}
    assert (read.crew.skill_field, read.crew.expire_hours) == ("language", 24)


# -- the environment ---------------------------------------------------------------------------------------


def test_a_bad_value_of_the_environment_names_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HITL_CREW__CAPACITY", "3")
    monkeypatch.setenv("HITL_CREW__ANNOTATORS", "ann,bob")
    with pytest.raises(BadSettings, match=r"environment: HITL_CREW__ANNOTATORS cannot be read; lists and tables are"):
        loaded(tmp_path, "")
    monkeypatch.setenv("HITL_CREW__ANNOTATORS", '["ann"]')
    assert loaded(tmp_path, "").crew.annotators == ("ann",)
    monkeypatch.setenv("HITL_BUDGET__OPEN_QUESTIONS", "-3")
    with pytest.raises(BadSettings, match=r"budget.open_questions \(from HITL_BUDGET__OPEN_QUESTIONS\): input"):
        loaded(tmp_path, "")
    monkeypatch.setenv("HITL_BUDGET__OPEN_QUESTIONS", "3")
    monkeypatch.setenv("HITL_CREW", "ann")
    with pytest.raises(BadSettings, match="environment: HITL_CREW cannot be read"):
        loaded(tmp_path, "")


def test_options_of_the_environment_are_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RECALL": "0", "BOLD": "true", "KIND": "soft", "ODD": "[1,"}.items():
        monkeypatch.setenv(f"HITL_POLICY__OPTIONS__{name}", value)
    assert loaded(tmp_path, "").policy.options == {"recall": 0, "bold": True, "kind": "soft", "odd": "[1,"}
    monkeypatch.setenv("HITL_COMBINE__OPTIONS", '{"x": "1", "y": "null"}')
    assert loaded(tmp_path, "").combine.options == {"x": "1", "y": "null"}, "a text in JSON is meant as one"


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("HITL_BUGDET__OPEN_QUESTIONS", "50", r"no such section; did you mean HITL_BUDGET__\.\.\.\?"),
        ("HITL_CREW__CAPACITIES__Ann", "1", "it has no keys of its own; .* as JSON: HITL_CREW__CAPACITIES='"),
        ("HITL_CREW__SKILLS__Ann__B", '["de"]', "as JSON: HITL_CREW__SKILLS='"),
        ("HITL_MODELS__Bert", "p.csv", "HITL_MODELS__Bert: .* HITL_MODELS='"),
        ("HITL_STORE__X", "1", "HITL_STORE__X: it has no keys of its own"),
        ("HITL_EVENTS__NAME", "chat", "HITL_EVENTS__NAME: it has no keys of its own"),
        ("HITL_CREW__CAPACITY__ANN", "1", "it has no keys of its own"),
        ("HITL_XYZ__X", "1", "HITL_XYZ__X: no such section; expected one of source, combine, budget"),
    ],
)
def test_a_variable_that_cannot_say_its_key_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, told: str
) -> None:
    monkeypatch.setenv("HITL_SERVICE_PORT_8080_TCP", "tcp://10.0.0.1")  # as Kubernetes sets it, and none of ours
    monkeypatch.setenv("HITL_EVENTS_A__B_SECRET", "x")
    assert loaded(tmp_path, "").budget.open_questions
    monkeypatch.setenv(variable, value)
    with pytest.raises(BadSettings, match=told):
        loaded(tmp_path, "")


def test_tables_and_lists_are_json_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HITL_CREW__CAPACITIES", '{"Ann": 1}')
    monkeypatch.setenv("HITL_MODELS", '{"Bert": "p.csv"}')
    monkeypatch.setenv("HITL_EVENTS", '[{"name": "chat", "url": "https://h.example/x", "template": "slack"}]')
    settings = loaded(tmp_path, ONE + "[crew]\ncapacities = { bob = 2 }\n")
    assert settings.crew.capacities == {"Ann": 1, "bob": 2}
    assert list(settings.models) == ["Bert"]
    (one,) = settings.events
    assert (one.name, one.shown, one.template) == ("chat", "https://h.example", "slack")


def test_an_empty_variable_does_not_hide_what_a_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        "BUDGET__OPEN_QUESTIONS",
        "SCHEDULE__CRON",
        "CREW__ANNOTATORS",
        "LIMITS__ROWS",
        "MODELS",
        "EVENTS",
        "BUDGET",
    ]:
        monkeypatch.setenv(f"HITL_{name}", "")
    assert loaded(tmp_path, "[budget]\nopen_questions = 7\n[limits]\nrows = 9\n").budget.open_questions == 7
    assert Limits() == limits()
    for name, value in {"HITL_STORE": "sqlite:///other.db", "HITL_WEBHOOK_SECRET": "hush"}.items():
        (tmp_path / name).write_text(value)
        monkeypatch.setenv(name, "")
        monkeypatch.setenv(f"{name}_FILE", str(tmp_path / name))
    settings = loaded(tmp_path, "")
    assert settings.store == "sqlite:///other.db"
    assert settings.webhook_secret is not None
    assert settings.webhook_secret.get_secret_value() == "hush"
    monkeypatch.delenv("HITL_WEBHOOK_SECRET_FILE")
    assert loaded(tmp_path, "").webhook_secret is None


# -- events ------------------------------------------------------------------------------------------------


def test_an_address_its_secret_and_what_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HITL_EVENTS_CHAT_SECRET", f"{SECRET} {OTHER}")
    found = loaded(tmp_path, ONE + 'kinds = ["run.failed"]\ntemplate = "slack"\n[serve]\nurl = "https://h.example"\n')
    (one,) = found.events
    assert (one.kinds, one.template, len(one.keys), one.lacks) == (("run.failed",), "slack", 2, None)
    assert one.address.endswith("hidden-part")
    assert one.shown == "https://hooks.example"
    assert not re.search(f"hidden-part|{SECRET[8:20]}", repr(found))
    assert found.serve.url == "https://h.example"
    assert loaded(tmp_path, "").events == ()
    assert loaded(tmp_path, ONE).events[0].kinds == KINDS


def test_the_address_may_be_in_the_environment_or_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    monkeypatch.setenv("HITL_EVENTS_CHAT_SECRET_FILE", str(tmp_path / "secret"))
    monkeypatch.setenv("HITL_EVENTS_CHAT_URL", "https://elsewhere.example/x")
    (one,) = loaded(tmp_path, ONE).events
    assert (one.address, len(one.keys)) == ("https://elsewhere.example/x", 1)
    assert loaded(tmp_path, '[[events]]\nname = "chat"\n').events[0].address == "https://elsewhere.example/x"


def test_what_it_lacks_is_said_and_what_is_stored_can_be_used(tmp_path: Path) -> None:
    (one,) = loaded(tmp_path, '[[events]]\nname = "chat"\n').events
    assert "HITL_EVENTS_CHAT_URL" in str(one.lacks)
    (one,) = loaded(tmp_path, ONE).events
    assert re.search("HITL_EVENTS_CHAT_SECRET.*openssl rand", str(one.lacks))
    assert loaded(tmp_path, ONE + 'template = "slack"\n').events[0].lacks is None


@pytest.mark.parametrize("bad", ["hunter2", "whsec_short", SECRET.removeprefix("whsec_"), f"{SECRET} hunter2"])
def test_a_secret_that_is_none_is_said_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    monkeypatch.setenv("HITL_EVENTS_CHAT_SECRET", bad)
    words = "HITL_EVENTS_CHAT_SECRET holds no secret of Standard Webhooks; expected whsec_ and 24 to 64 bytes"
    with pytest.raises(BadSettings, match=words) as found:
        loaded(tmp_path, ONE)
    assert not re.search("hunter2|short", str(found.value))


def test_a_question_has_the_method_of_its_table_or_of_its_control() -> None:
    combine = CombineSettings.model_validate(
        {"method": "majority", "topics": {"method": "one-coin"}, "topics=art": {"method": "vb-ibcc"}}
    )
    methods = [combine.of(name).method for name in ("mood", "topics=law", "topics=art")]
    assert methods == ["majority", "one-coin", "vb-ibcc"]
