"""Language models as predictors.

The system message names the J classes by options A, B, ... (above 26 classes 1, 2, ...). The prompt, a Jinja template,
shows one item. The first of these that the reply allows gives the probabilities:

    log-probabilities   p_j ∝ probability that the token of the answer is option j
    stated confidence   c of the answer, (1 - c) / (J - 1) of each other class
    repeated samples    p_j = (n_j + 1/J) / (n + 1) from n answers at temperature 1
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np

from hitl.errors import BadSettings
from hitl.models.predictors.features import digest_of
from hitl.models.predictors.inputs import Batch
from hitl.models.predictors.replies import Prompt, Replies, Server, Unanswered, Usage
from hitl.tables.matrices import Array

SYSTEM = """\
You label one item. The options are:
{options}
Answer with the {kind} of exactly one option, then a space, then your confidence in percent. Example: {example} 80"""
PROMPT = "{% for name, value in item.items() %}{{ name }}: {{ value }}\n{% endfor %}"
"""Prompt by default: the columns of the item."""

MOST_CERTAIN = 0.99
"""Largest stated confidence that is believed."""

ADDRESSES = ("https://", "http://", "data:image/")

LEAST = 1e-6
"""Smallest probability of a class by log-probabilities, before they are normalized."""


class LanguageModel:
    """Language model as a predictor of J classes.

    `prompt`: file of a Jinja template with the variable `item` (column -> text), which may set `classes`: a list, or a
    dict from class to guideline; None: the columns of the item. `classes`: names, unless the prompt sets them.
    `samples`: number of repeated samples. `image`: column with the address of an image, which the server fetches; it is
    shown beside the prompt. `path`: file that stores the replies. Raise BadSettings for a wrong prompt, classes or
    server, MissingExtra without the SDK.
    """

    def __init__(
        self,
        server: Server,
        path: Path,
        classes: tuple[str, ...] | None,
        prompt: Path | None = None,
        samples: int = 5,
        image: str | None = None,
    ) -> None:
        if prompt is not None and not prompt.is_file():
            raise BadSettings(f"--prompt {prompt}: no such file")
        source = PROMPT if prompt is None else prompt.read_text(encoding="utf-8")
        self._render, named = _template(source, prompt)
        if named and classes:
            raise BadSettings(f"--classes: {prompt} sets the classes too; keep one of them")
        guidelines = named or dict.fromkeys(classes or (), "")
        self.classes = tuple(guidelines)
        if len(guidelines) < 2:
            raise BadSettings("--classes: name two classes or more, here or as {% set classes = [...] %} in --prompt")
        letters = len(guidelines) <= len(ascii_uppercase)
        options = list(ascii_uppercase) if letters else [str(n) for n in range(1, len(guidelines) + 1)]
        self._options = {option: j for j, option in enumerate(options[: len(guidelines)])}
        self._names = {name.casefold(): j for j, name in enumerate(guidelines)}
        self._pattern = _answers(self._options, self._names)
        lines = [f"{option}: {name}" for option, name in zip(options, guidelines, strict=False)]
        lines = [line + (f" ({hint})" if hint else "") for line, hint in zip(lines, guidelines.values(), strict=True)]
        system = SYSTEM.format(options="\n".join(lines), kind="letter" if letters else "number", example=options[0])
        self.digest = digest_of(server.base_url, server.model, server.max_tokens, source, system)
        # Numbers may be several tokens, whose probabilities say little.
        self._replies = Replies(server, system, path, self.digest[:12], self._alternatives if letters else None)
        self._concurrency, self._samples, self._unasked = server.concurrency, samples, 0
        self._unanswered: dict[str, str] = {}
        self._image = image

    def predict(self, batch: Batch) -> Array:
        """Return (B, J) probabilities, NaN for items without input or answer, and beyond the budget.

        Raise BadSettings if the server refuses all requests, and Unreachable if it no longer answers. Replies that have
        arrived are stored.
        """
        values = np.full((len(batch.items), len(self.classes)), np.nan)
        with ThreadPoolExecutor(self._concurrency) as pool:
            for row, p_j in enumerate(pool.map(self._item, batch.items, batch.inputs)):
                if isinstance(p_j, Unanswered):
                    self._unanswered[batch.items[row]] = str(p_j)
                elif p_j is not None:
                    values[row] = p_j
                elif batch.inputs[row] is not None:
                    self._unasked += 1
        return values

    @property
    def usage(self) -> Usage:
        """Replies, tokens and cost."""
        return self._replies.usage()

    @property
    def warnings(self) -> list[str]:
        """Items that have no answer, with reasons, and items beyond the budget."""
        problems = []
        if self._unanswered:
            first = "; ".join(f"{item}: {why}" for item, why in list(self._unanswered.items())[:3])
            problems.append(f"{len(self._unanswered):,} items have no answer and no probabilities ({first})")
        if self._unasked:
            problems.append(
                f"The budget is used up: {self._unasked:,} items have no probabilities. To go on, run it again with a "
                "larger --budget. Stored replies are not paid for again."
            )
        return problems

    def _item(self, item: str, fields: Mapping[str, str | None] | None) -> Array | Unanswered | None:
        """Return the (J,) probabilities of an item, None if it has no text or the budget is used up, or the reason."""
        if fields is None:
            return None
        image = "" if self._image is None else fields[self._image] or ""
        shown = {name: value or "" for name, value in fields.items() if name != self._image}
        prompt = Prompt(self._render(item, shown), image)
        try:
            if self._image is not None and not image.startswith(ADDRESSES):
                raise Unanswered(f"{image[:40]!r} is no address of an image; expected https://... or data:image/...")
            reply = self._replies.reply(item, prompt, 0)
            if reply is None:
                return None
            j, confidence = self._answer(reply.text)
            if j is not None and reply.alternatives:
                return self._from_tokens(reply.alternatives)
            if j is not None and confidence is not None:
                others = (1 - confidence) / (len(self.classes) - 1)
                return np.where(np.arange(len(self.classes)) == j, confidence, others)
            return self._sampled(item, prompt, reply.text)
        except Unanswered as error:
            return error

    def _sampled(self, item: str, prompt: Prompt, first: str) -> Array | None:
        """Return (J,) probabilities from samples. If neither the first reply nor one sample names a class, give up."""
        answers: list[int] = []
        if not first.strip():
            raise Unanswered("the reply is empty; models that reason need a larger --max-tokens")
        for sample in range(1, self._samples + 1):
            reply = self._replies.reply(item, prompt, sample)
            if reply is None:
                return None
            j = self._answer(reply.text)[0]
            answers += [] if j is None else [j]
            if not answers and self._answer(first)[0] is None:
                break
        if not answers:
            raise Unanswered(f"the reply names no class: {' '.join(first.split())[:40]!r}")
        counts = Counter(answers)
        n_j = np.array([counts[j] for j in range(len(self.classes))], dtype=np.float64)
        return np.asarray((n_j + 1 / n_j.size) / (n_j.sum() + 1))

    def _match(self, text: str) -> re.Match[str] | None:
        thoughts = text.rfind("</think>")
        return self._pattern.match(text, 0 if thoughts < 0 else thoughts + len("</think>"))

    def _answer(self, text: str) -> tuple[int | None, float | None]:
        """Return the class and the confidence in [1/J, MOST_CERTAIN] that the first line of a reply states, or None."""
        match = self._match(text)
        if match is None:
            return None, None
        answer, name, number = match.groups()
        j = self._options.get(answer.upper(), self._names.get(answer.casefold()))
        if name is not None and self._names[name.casefold()] != j:
            if number is not None or not name.isdecimal():
                return None, None
            number = name  # the confidence, if a class is named as it is: A 100
        confidence = math.nan if number is None else float(number)
        confidence = confidence / 100 if confidence > 1 else confidence
        return j, min(confidence, MOST_CERTAIN) if 1 / len(self.classes) <= confidence <= 1 else None

    def _alternatives(self, text: str, tokens: Any) -> dict[str, float] | None:
        """Return token -> log-probability where the answer begins, or None if it is no option of one token or NaN."""
        match, end = self._match(text), 0
        for token in tokens:
            end += len(token.token)
            if match is not None and end > match.start(1):
                every = {other.token: other.logprob for other in token.top_logprobs or ()} | {
                    token.token: token.logprob
                }
                known = token.token.strip() in self._options and not any(map(math.isnan, every.values()))
                return every if known else None
        return None

    def _from_tokens(self, alternatives: Mapping[str, float]) -> Array:
        """Return (J,) probabilities. Classes that are not listed share the mass that the listed tokens leave.

        Each gets at most that of the least likely token, because it would be listed otherwise.
        """
        p_j: Array = np.zeros(len(self.classes))
        masses = {token: math.exp(min(logprob, 0.0)) for token, logprob in alternatives.items()}
        for token, mass in masses.items():
            if token.strip() in self._options:
                p_j[self._options[token.strip()]] += mass
        absent = p_j == 0
        p_j[absent] = min(max(1 - sum(masses.values()), 0.0) / max(absent.sum(), 1), *masses.values())
        p_j = np.maximum(p_j, LEAST)
        return np.asarray(p_j / p_j.sum())


def _answers(options: Mapping[str, int], names: Mapping[str, int]) -> re.Pattern[str]:
    """Return the pattern of a first line: an option or a class, perhaps the option's class, perhaps a confidence.

    Nothing else may stand there: "A dog is seen" is not option A.
    """

    def any_of(words: list[str]) -> str:
        return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))

    first, name = any_of([*options, *names]), any_of([*names])
    gap = r"[^\w\n]*"
    return re.compile(
        rf"[\W_]*(?:(?:answer|option)[\W_]*)?({first})(?!\w){gap}(?:({name})(?!\w){gap})?(?:confidence[\W_]*)?"
        rf"(\d+(?:\.\d+)?)?{gap}(?:\n|\Z)",
        re.IGNORECASE,
    )


def _template(source: str, path: Path | None) -> tuple[Callable[[str, Mapping[str, str]], str], dict[str, str]]:
    """Return a function that renders the prompt of an item, and class -> guideline, empty unless the prompt sets it."""
    from jinja2 import StrictUndefined, TemplateError, nodes
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    where, classes = f"--prompt {path}", {}
    try:
        template = environment.from_string(source)
        for assign in environment.parse(source).find_all(nodes.Assign):
            target, expression = assign.target, assign.node
            if isinstance(target, nodes.Name) and target.name == "classes" and isinstance(expression, nodes.Expr):
                value = expression.as_const()
                classes = {str(name): str(value[name]) if isinstance(value, dict) else "" for name in value}
    except nodes.Impossible:
        raise BadSettings(f"{where}: classes: expected a list of names, or names with guidelines") from None
    except TemplateError as error:
        raise BadSettings(f"{where}: line {getattr(error, 'lineno', '?')}: {error}") from None

    def render(item: str, fields: Mapping[str, str]) -> str:
        try:
            return template.render(item=fields).strip()
        except Exception as error:  # a template can fail in any way
            raise BadSettings(f"{where}: item {item!r}: {error}") from None

    return render, classes
