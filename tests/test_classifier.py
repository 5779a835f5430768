"""The Python API, over the fake backend."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import get_scorer

import lengthwise
from lengthwise import Classifier, prepare
from lengthwise.errors import InputError, OptionError, TaskError
from tests.test_engine import engine

LABELS = ["billing", "technical", "account"]
TEXTS = ["My card was charged twice.", "It crashes.", "Change my address.", "My card was charged twice."]


@pytest.fixture(autouse=True)
def fake_engine(monkeypatch):
    """No model is loaded: every engine is the fake one with the options it was asked for."""
    loads = []

    def load_engine(task, model, options):
        loads.append((task, model, options))
        return engine(task, verify=options.verify, window=options.window)

    monkeypatch.setattr(prepare, "load_engine", load_engine)
    return loads


def test_predict_gives_a_label_for_every_text_in_order():
    """A plain list of labels; equal texts have equal labels."""
    predicted = Classifier(LABELS).predict(TEXTS)
    assert isinstance(predicted, list)
    assert len(predicted) == 4
    assert set(predicted) <= set(LABELS)
    assert predicted[0] == predicted[3]


@pytest.mark.parametrize(
    "given",
    [TEXTS, tuple(TEXTS), np.array(TEXTS), np.array(TEXTS, dtype=object),
     pd.Series(TEXTS, index=[9, 8, 7, 6]), (text for text in TEXTS)],
    ids=["list", "tuple", "str array", "object array", "Series", "generator"],
)  # fmt: skip
def test_any_collection_of_texts_will_do(given):
    """Whatever holds the texts, the answers are those of the list."""
    assert Classifier(LABELS).predict(given) == Classifier(LABELS).predict(TEXTS)


def test_probabilities_have_a_row_a_text_and_a_column_a_class():
    """Shape (4, 3), rows sum to one, the largest is the predicted label."""
    clf = Classifier(LABELS)
    probabilities = clf.predict_proba(TEXTS)
    assert probabilities.shape == (4, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert clf.classes_[probabilities.argmax(axis=1)].tolist() == clf.predict(TEXTS)


def test_texts_that_are_missing_have_no_label():
    """None, NaN and pandas' NA: no label, NaN probabilities, status "empty"; the others are unharmed."""
    result = Classifier(LABELS).classify(["text", None, float("nan"), pd.NA, "NA"])
    assert [label is None for label in result.labels] == [False, True, True, True, False]
    assert result.status == ("ok", "empty", "empty", "empty", "ok")
    assert np.isnan(result.probabilities[1]).all()
    assert len(result) == result.report.totals.rows == 5


def test_no_texts_give_empty_answers():
    """An empty list is not an error."""
    result = Classifier(LABELS).classify([])
    assert result.labels.tolist() == []
    assert result.probabilities.shape == (0, 3)


def test_the_windows_of_a_long_list_are_put_together():
    """More texts than a window holds: one answer each, in order."""
    texts = [f"ticket {i}" for i in range(10)]
    assert Classifier(LABELS, window=3).predict(texts) == Classifier(LABELS).predict(texts)


def test_the_model_is_loaded_once_and_late(fake_engine):
    """Making a classifier loads nothing; two calls load once; changing a parameter loads again."""
    clf = Classifier(LABELS, model="some-model", threads=2)
    assert fake_engine == []
    clf.predict(TEXTS)
    clf.predict(TEXTS)
    assert [(model, options.threads) for _, model, options in fake_engine] == [("some-model", 2)]
    clf.set_params(model="other-model").predict(TEXTS)
    assert [model for _, model, _ in fake_engine] == ["some-model", "other-model"]


def test_two_threads_get_the_answers_of_one():
    """Eight calls at once on one classifier: every one has its own texts' answers and its own report."""
    clf = Classifier(LABELS)
    jobs = [[f"ticket {i} {k}" for k in range(i + 1)] for i in range(8)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(clf.classify, jobs))
    for job, result in zip(jobs, results, strict=True):
        assert result.labels.tolist() == Classifier(LABELS).predict(job)
        assert result.report.totals.rows == len(job)


def test_it_can_be_pickled():
    """For worker processes: the copy has the same parameters and answers, model loaded or not."""
    clf = Classifier(LABELS, window=5)
    predicted = clf.predict(TEXTS)
    copied = pickle.loads(pickle.dumps(clf))
    assert copied.get_params() == clf.get_params()
    assert copied.predict(TEXTS) == predicted


def test_scikit_learn_can_clone_and_score_it():
    """clone() makes an equal classifier, and accuracy comes out of scikit-learn's own scorer."""
    clf = clone(Classifier(LABELS, model="m", window=7))
    assert clf.get_params()["window"] == 7
    predicted = clf.predict(TEXTS)
    assert get_scorer("accuracy")(clf, TEXTS, predicted) == 1.0
    wrong = [next(label for label in LABELS if label != p) for p in predicted]
    assert clf.score(TEXTS, wrong) == 0.0
    assert clf.fit(TEXTS, predicted) is clf


def test_a_task_file_can_be_given(tmp_path):
    """Labels, their texts and the template come from the file."""
    path = tmp_path / "task.toml"
    path.write_text('labels = ["yes", "no"]\n', encoding="utf-8")
    assert Classifier(task=path).classes_.tolist() == ["yes", "no"]
    assert Classifier(task=str(path)).get_params()["task"] == str(path)


def test_labels_and_task_are_alternatives():
    """Neither or both is an error that shows both forms."""
    for given in ({}, {"labels": LABELS, "task": "t.toml"}):
        with pytest.raises(OptionError, match="either labels"):
            Classifier(**given)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [(lambda: Classifier(LABELS, strategie="packed"), OptionError, "did you mean 'strategy'"),
     (lambda: Classifier(LABELS).set_params(modell="x"), OptionError, "did you mean 'model'"),
     (lambda: Classifier(["only"]), TaskError, "only|two|2"),
     (lambda: Classifier(LABELS).predict("one text"), InputError, "list"),
     (lambda: Classifier(LABELS).score(TEXTS, ["billing"]), InputError, "4 texts but 1"),
     (lambda: Classifier(LABELS).score([], []), InputError, "no text")],
)  # fmt: skip
def test_mistakes_are_explained(call, error, says):
    """Each says what was wrong, as the project's own error."""
    with pytest.raises(error, match=says):
        call()


def test_the_public_names_are_pinned():
    """What `from lengthwise import *` promises; a change here is a change of the API."""
    assert sorted(lengthwise.__all__) == [
        "Classification", "Classifier", "EngineOptions", "Example", "FakeBackend", "FakeReference",
        "InputError", "Interrupted", "Label", "LengthwiseError", "ModelError", "OptionError",
        "OutputError", "Task", "TaskError", "VerificationError", "__version__", "load_task",
    ]  # fmt: skip
    assert all(getattr(lengthwise, name) is not None for name in lengthwise.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Clasifier'"):
        lengthwise.Clasifier  # noqa: B018 - the access is what is tested


def test_repr_shows_what_was_given():
    """For notebooks."""
    assert repr(Classifier("a,b", model="m")) == "Classifier(labels='a,b', model='m')"
