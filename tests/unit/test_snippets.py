"""The shipped sentences: their ratings, labels and split."""

import shutil

import pytest
import torch

from macgpu import data
from macgpu.jobs import snippets


@pytest.fixture(scope="module")
def parts():
    return snippets.load()


def test_all_sentences_are_read_with_their_ratings():
    rated = snippets.rated()
    assert len(rated) == 10_605
    assert all(-4 <= rating <= 4 and text.strip() for rating, text in rated)
    # A line of each kind, as the source has it.
    assert rated[2] == (-0.6, "Effective but too tepid biopic")
    assert rated[-1][0] == -1.8125
    assert sum("é" in text for _, text in rated) > 10, "read as UTF-8"


def test_the_label_is_the_ratings_sign_and_what_is_not_clear_is_left_out(parts):
    ratings = {}
    for rating, text in snippets.rated():
        ratings.setdefault(text, []).append(rating)
    for part in parts:
        for text, label in zip(part.texts, part.labels.tolist(), strict=True):
            wanted = "positive" if label else "negative"
            assert any(r >= 0.5 if label else r <= -0.5 for r in ratings[text]), (text, wanted)
    clear = sum(abs(rating) >= 0.5 for rating, _ in snippets.rated())
    assert sum(map(len, parts)) == clear == 10_605 - 533


def test_no_sentence_is_on_both_sides(parts):
    training, test = ({" ".join(snippets.words(text)) for text in part.texts} for part in parts)
    assert not training & test
    # Nor if it is written otherwise.
    assert snippets._place("A pretentious  mess.") == snippets._place("a 'pretentious' mess")


def test_the_split_is_the_same_everywhere(parts):
    training, test = parts
    assert (len(training), len(test)) == (8043, 2029)
    assert test.texts[0].startswith("It's one heck of a character study    not of Hearst or Davies")
    assert 0.48 < training.labels.double().mean() < 0.52
    assert 0.48 < test.labels.double().mean() < 0.52


def test_the_first_sentences_are_a_fair_sample(parts):
    # The source has sentences of one review, and of one label, behind another.
    for part in parts:
        assert 0.44 < part.first(500).labels.double().mean() < 0.56
        assert len(part.first(500).texts) == 500


def test_a_changed_file_is_found_and_named(tmp_path, monkeypatch):
    shutil.copytree(data.DATA, tmp_path / "data")
    path = tmp_path / "data" / data.SNIPPETS
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    monkeypatch.setattr(data, "DATA", tmp_path / "data")
    for read in (snippets.load, data.check_files):
        with pytest.raises(data.DataError, match="movieReviewSnippets.*git checkout") as raised:
            read()
        assert "\n" not in str(raised.value)


def test_labels_are_whole_numbers_for_a_loss(parts):
    assert all(part.labels.dtype == torch.int64 for part in parts)
