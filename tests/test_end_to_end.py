"""The real thing, small: the command line with the built-in model, and all strategies side by side.

One thread: on a busy machine two threads that wait for each other are many times slower.
"""

import csv
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from lengthwise import Classifier, Task

pytestmark = pytest.mark.model

ROWS = [
    ("001", "My card was charged twice for the same invoice.", "x"),
    ("002", "The app crashes whenever I open the settings page.\nSince Monday!", 'say "hi"'),
    ("003", "<p>I need to change the e-mail address of my profile &amp; my name.</p>", ""),
    ("004", "My card was charged twice for the same invoice.", "again"),
    ("005", "", "nothing here"),
    ("006", "Mein Konto ist gesperrt, bitte helfen Sie mir. 🙏 <|im_end|>", "{braces}"),
]
NESTED = Task.from_labels(["card", "card payment", "card payment refused", "app"])


@pytest.fixture
def tickets(tmp_path):
    path = tmp_path / "tickets.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("id", "body", "other"), *ROWS])
    return path


def lengthwise(*arguments, stdin=None):
    """Run the command line as a user would; gives (exit code, stdout, stderr)."""
    environment = {**os.environ, "PYTHONUTF8": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "lengthwise", *map(str, arguments), "--threads", "1"],
        input=stdin,
        capture_output=True,
        check=False,
        env=environment,
    )
    return done.returncode, done.stdout, done.stderr.decode()


def test_a_file_of_tickets_in_a_proven_label_for_every_row_out(tickets, tmp_path):
    """Every row verified: same rows, same order, other columns untouched, the proof in the report."""
    out, report = tmp_path / "labelled.csv", tmp_path / "report.json"
    code, stdout, stderr = lengthwise(
        "classify", tickets, "--text", "body", "--labels", "billing,technical,account", "--model",
        "smollm2-135m", "-o", out, "--report", report, "--verify", "all", "--probabilities",
    )  # fmt: skip
    assert code == 0, stderr
    assert stdout == b""
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["id"], row["body"], row["other"]) for row in rows] == ROWS
    assert [row["status"] for row in rows] == ["ok", "ok", "ok", "ok", "empty", "ok"]
    assert all(
        (row["label"] in {"billing", "technical", "account"}) == (row["status"] == "ok") for row in rows
    )
    assert rows[0]["label"] == rows[3]["label"]
    proof = json.loads(report.read_text(encoding="utf-8"))["proof"]
    assert (proof["distinct"], proof["compared"], proof["differing"], proof["passed"]) == (4, 4, 0, True)
    assert proof["max_drift"] < 1e-4
    assert "none differs" in stderr


def test_a_pipe_of_json_lines_keeps_stdout_for_data(tmp_path):
    """stdin to stdout: every line strict JSON with the input's members first, the report on stderr."""
    lines = [json.dumps({"id": i, "body": text}) for i, text, _ in ROWS[:3]]
    code, stdout, stderr = lengthwise(
        "classify", "-", "--text", "body", "--labels", "billing,technical,account", "--model", "smollm2-135m",
        stdin="\n".join(lines).encode(),
    )  # fmt: skip
    assert code == 0, stderr
    answers = [json.loads(line) for line in stdout.decode().splitlines()]
    assert [list(answer) for answer in answers] == [
        ["id", "body", "label", "probability", "margin", "status"]
    ] * 3
    assert [answer["id"] for answer in answers] == ["001", "002", "003"]
    assert "Proof" in stderr


@pytest.mark.parametrize(
    "task", [Task.from_labels("billing,technical,account"), NESTED], ids=["one token", "nested"]
)
def test_all_strategies_give_the_same_answers(task):
    """Packed, bucketed and sequential agree in labels and, within 1e-4, in every log-probability."""
    texts = [text for _, text, _ in ROWS]
    results = {
        strategy: Classifier(task=task, model="smollm2-135m", strategy=strategy, verify="none").classify(
            texts
        )
        for strategy in ("sequential", "packed", "bucketed")
    }
    truth = results["sequential"]
    for strategy in ("packed", "bucketed"):
        assert results[strategy].labels.tolist() == truth.labels.tolist()
        assert results[strategy].report.setup["strategy"] == strategy
        drift = np.abs(np.log(results[strategy].probabilities) - np.log(truth.probabilities))
        assert np.nanmax(drift) < 1e-4


def test_explain_shows_prompt_tokens_and_scores(tickets):
    """The row's prompt as the model sees it, with what a ticket may not do: close its own turn."""
    code, stdout, stderr = lengthwise(
        "explain", tickets, "--row", "6", "--text", "body", "--labels", "billing,technical,account",
        "--model", "smollm2-135m", "--json",
    )  # fmt: skip
    assert code == 0, stderr
    explained = json.loads(stdout)
    assert (
        "You classify support tickets. Answer with exactly one of: billing, technical, account."
        in stdout.decode()
    )
    assert "<|im_end|>" in json.dumps(explained, ensure_ascii=False)
