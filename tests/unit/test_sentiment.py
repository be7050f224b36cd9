"""A judge's file: the same outputs in another process, and what is refused."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from macgpu import cli
from macgpu.checkpoints import CheckpointError
from macgpu.data import DataError
from macgpu.jobs import bert, sentiment, tokens
from macgpu.jobs.bert import Bert
from macgpu.jobs.sentiment import Card, Judge
from tests.unit.test_classifier import run
from tests.unit.test_text import TEXTS

CARD = Card(["bad", "good"], 12, "drawn at random")


@pytest.fixture(scope="module")
def judge():
    torch.manual_seed(0)
    model = Bert(bert.configuration("tiny")).eval()
    return Judge(model, tokens.train_tokenizer(TEXTS, 200), CARD)


@pytest.fixture
def file(judge, tmp_path):
    sentiment.save(tmp_path / "judge.safetensors", judge)
    return tmp_path / "judge.safetensors"


def test_another_process_computes_the_same(file, judge, tmp_path):
    program = (
        "import sys, numpy; from macgpu.jobs import sentiment; "
        "judge = sentiment.load(sys.argv[1]); "
        "numpy.save(sys.argv[2], judge.logits(sys.argv[3:]).numpy())"
    )
    out = tmp_path / "logits.npy"
    subprocess.run([sys.executable, "-c", program, str(file), str(out), *TEXTS], check=True)
    assert np.array_equal(np.load(out), judge.logits(TEXTS).numpy())


def test_the_card_travels_with_the_weights(file):
    assert sentiment.load(file).card == CARD


def test_logits_come_in_the_order_of_the_sentences(judge):
    together = judge.logits(TEXTS)
    alone = torch.cat([judge.logits([sentence]) for sentence in TEXTS])
    assert torch.allclose(together, alone, atol=1e-5)


def test_a_judgement_names_the_classes_likeliest_first(judge):
    said = judge.judge("a fine film")
    assert set(said.shares) == {"good", "bad"}
    assert sum(said.shares.values()) == pytest.approx(1)
    best = judge.logits(["a fine film"])[0].argmax()
    assert next(iter(said.shares)) == CARD.classes[best]
    assert (said.tokens, said.cut, said.unknown, said.notes) == (3, 0, 0, [])


def test_a_long_sentence_is_cut_and_it_says_so(judge):
    said = judge.judge("fine " * 20)
    assert (said.tokens, said.cut) == (20, 10)
    assert "the last 10 of 20 tokens cut" in str(said)
    assert said.shares == pytest.approx(judge.judge("fine " * 10).shares, abs=1e-6)
    assert not judge.judge("fine " * 10).notes


def test_what_the_vocabulary_does_not_cover_is_said(judge):
    assert judge.judge("a 電 film 影").notes == ["2 tokens unknown to it"]
    # Beyond the cut, nobody sees it.
    assert judge.judge("fine " * 10 + "電").unknown == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        *(("", "empty"), (" \n\t", "empty"), ("good \udcff", "UTF-8")),
        *((None, "NoneType"), (3.5, "float"), (["a"], "list")),
    ],
)
def test_what_is_no_sentence_is_refused_in_a_line(judge, given, said):
    with pytest.raises(DataError, match=said) as raised:
        judge.judge(given)
    assert "\n" not in str(raised.value)


def changed(file, name, change):
    """The file with one of its texts changed."""
    from safetensors import safe_open

    with safe_open(file, "pt") as opened:
        described = opened.metadata()
    described[name] = change(described[name])
    save_file(load_file(file), file, described)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("card", lambda text: "{}", "no judge"),
        ("card", lambda text: "not JSON", "no judge"),
        ("tokenizer", lambda text: "{}", "no judge"),
        ("config", lambda text: text.replace('"hidden_size": 128', '"hidden_size": "x"'), "no j"),
        (
            "config",
            lambda text: json.dumps({**json.loads(text), "intermediate_size": 256}),
            "another model",
        ),
    ],
)
def test_a_file_whose_description_does_not_fit_is_refused(file, name, change, said):
    changed(file, name, change)
    with pytest.raises(CheckpointError, match=f"judge.safetensors: .*{said}") as raised:
        sentiment.load(file)
    assert "\n" not in str(raised.value)


def test_weights_of_something_else_are_no_judge(tmp_path):
    save_file({"a": torch.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match="other.safetensors: holds no judge"):
        sentiment.load(tmp_path / "other.safetensors")


def test_a_damaged_file_and_none_are_named(file, tmp_path):
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="judge.safetensors: damaged"):
        sentiment.load(file)
    with pytest.raises(CheckpointError, match="none.safetensors: cannot be read"):
        sentiment.load(tmp_path / "none.safetensors")


def test_a_file_that_cannot_be_written_leaves_nothing(judge, tmp_path):
    with pytest.raises(CheckpointError, match="cannot be written"):
        sentiment.save(tmp_path / "nowhere" / "judge.safetensors", judge)


def test_the_command_judges_a_sentence(file):
    done = CliRunner().invoke(cli.app, ["judge", str(file), "a fine film " * 5])
    lines = done.stdout.splitlines()
    assert done.exit_code == 0 and len(lines) == 3
    assert {line.split(":")[0] for line in lines} == {"good", "bad", "note"}


def test_the_command_refuses_in_one_line(file, tmp_path, capsys):
    status, said = run(capsys, "judge", file, "  ")
    assert status == 1 and said.count("\n") == 1 and "empty" in said
    status, said = run(capsys, "judge", tmp_path / "none.safetensors", "a film")
    assert status == 1 and said.count("\n") == 1 and "none.safetensors" in said


def test_a_sentence_without_quotes_is_one_line(tmp_path, capsys):
    status, said = run(capsys, "judge", tmp_path / "any.safetensors", "a", "fine", "film")
    assert status == 1
    assert said == "macgpu: 3 words, each by itself: put the sentence in quotes\n"
