"""The text job: tokens, padding, the mask, the schedule, training."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from tokenizers import Tokenizer
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from macgpu.data import DataError
from macgpu.jobs import bert, text, tokens
from macgpu.jobs.bert import Bert
from macgpu.jobs.text import Recipe
from macgpu.jobs.tokens import PADDINGS, SentenceBatches, Sentences, encode, plan_batches
from macgpu.measure.steps import Options
from tests.unit.test_images import Reads

TEXTS = [
    "a fine film, warm and funny",
    "a dull film",
    "warm, funny and wise: a fine, fine film that nobody should miss",
    "dull. cold. long. a mess of a film",
]
TINY = Recipe("tiny", vocabulary=200, longest=24, epochs=3, batch_size=8, peak_rate=1e-3)


@pytest.fixture(scope="module")
def tokenizer():
    return tokens.train_tokenizer(TEXTS, 200)


@pytest.fixture(scope="module")
def good_and_bad(tokenizer):
    """64 sentences of two classes that one word tells apart."""
    texts = [("fine " if i % 2 else "dull ") + "film and " * (i % 5 + 1) for i in range(64)]
    return encode(tokenizer, texts, torch.arange(64) % 2, 24)


def lengths_of(count, longest, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, longest + 1, (count,), generator=generator)


def some(count=50, longest=40):
    """Sentences whose ids say which one they are of."""
    lengths = lengths_of(count, longest)
    inside = torch.arange(longest) < lengths[:, None]
    ids = torch.arange(1, count + 1)[:, None] * inside
    return Sentences(ids, lengths, torch.arange(count) % 2, 0)


def test_a_sentence_survives_the_tokenizer(tokenizer):
    for sentence in TEXTS:
        encoding = tokenizer.encode(sentence)
        assert encoding.tokens[0] == "[CLS]" and encoding.tokens[-1] == "[SEP]"
        letters = "".join(sentence.split())
        assert "".join(tokenizer.decode(encoding.ids).split()) == letters


def test_a_word_that_was_never_seen_is_made_of_pieces(tokenizer):
    # All its letters were seen.
    unseen = tokenizer.encode("unfunny")
    assert tokens.UNKNOWN not in unseen.ids and len(unseen.ids) > 3
    assert tokenizer.decode(unseen.ids) == "unfunny"


def test_a_character_that_was_never_seen_is_unknown_and_nothing_else_is(tokenizer):
    ids = tokenizer.encode("a fine 電 film").ids
    assert ids.count(tokens.UNKNOWN) == 1
    assert tokenizer.encode("A FINE FILM").ids == tokenizer.encode("a fine film").ids


def test_the_special_tokens_have_their_numbers_and_the_vocabulary_its_size(tokenizer):
    assert [tokenizer.token_to_id(name) for name in tokens.SPECIAL] == [0, 1, 2, 3, 4]
    assert tokens.train_tokenizer(TEXTS * 3, 50).get_vocab_size() <= 50


def test_the_same_texts_give_the_same_tokenizer_in_another_process(tokenizer):
    program = (
        "import sys; from macgpu.jobs import tokens; "
        "print(tokens.train_tokenizer(sys.argv[1:], 200).to_str())"
    )
    other = subprocess.run(
        [sys.executable, "-c", program, *TEXTS], check=True, capture_output=True, text=True
    )
    assert other.stdout.strip() == tokenizer.to_str()


def test_sentences_are_filled_up_and_long_ones_keep_begin_and_end(tokenizer):
    whole = [tokenizer.encode(sentence).ids for sentence in TEXTS]
    encoded = encode(tokenizer, TEXTS, torch.arange(4), 10)
    assert encoded.cut == sum(len(ids) > 10 for ids in whole) > 0
    for ids, row, length in zip(whole, encoded.ids, encoded.lengths.tolist(), strict=True):
        expected = ids if len(ids) <= 10 else ids[:9] + ids[-1:]
        assert row.tolist() == expected + [0] * (10 - len(expected))
        assert length == len(expected)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("seed", [None, 0])
def test_every_sentence_is_in_one_batch_and_whole(padding, seed):
    sentences = some()
    batches = SentenceBatches(sentences, 8, padding, seed)
    found = []
    for ids, labels in batches:
        rows = ids[:, 0] - 1
        for row, number in zip(ids, rows.tolist(), strict=True):
            assert (row == number + 1).sum() == sentences.lengths[number], "nothing is cut off"
        assert torch.equal(labels, sentences.labels[rows])
        found += rows.tolist()
    assert sorted(found) == list(range(50))
    assert len(list(batches)) == len(batches) == 7
    if seed is None and padding != "buckets":
        assert found == list(range(50)), "without a seed, the order is kept"


def test_the_seed_decides_the_batches_and_each_pass_is_another():
    def passes(seed):
        batches = SentenceBatches(some(), 8, "buckets", seed)
        return [torch.cat([ids[:, 0] for ids, _ in batches]).tolist() for _ in range(2)]

    assert passes(1) == passes(1)
    assert passes(1)[0] != passes(1)[1]
    assert passes(1) != passes(2)


def test_the_waste_of_a_known_case():
    lengths = torch.tensor([4, 8, 16, 4])
    fixed = plan_batches(lengths, 2, "fixed", 20)
    longest = plan_batches(lengths, 2, "longest", 20)
    buckets = plan_batches(lengths, 2, "buckets", 20)
    assert tokens.waste(fixed, lengths) == pytest.approx(1 - 32 / 80)
    assert tokens.waste(longest, lengths) == pytest.approx(1 - 32 / (2 * 8 + 2 * 16))
    # Two of the three short ones fill a batch of length 8; the third joins the long one.
    assert tokens.waste(buckets, lengths) == pytest.approx(1 - 32 / (2 * 8 + 2 * 16))
    assert tokens.shapes(fixed) == {(2, 20)}
    assert tokens.shapes(longest) == tokens.shapes(buckets) == {(2, 8), (2, 16)}


def test_buckets_waste_little_in_few_shapes():
    lengths = lengths_of(2000, 64)
    generator = torch.Generator().manual_seed(0)
    plans = {p: plan_batches(lengths, 32, p, 64, generator) for p in PADDINGS}
    wasted = {p: tokens.waste(plan, lengths) for p, plan in plans.items()}
    assert wasted["fixed"] == pytest.approx(1 - lengths.double().mean().item() / 64)
    assert wasted["buckets"] < 0.15 < wasted["longest"] < wasted["fixed"]
    # A shape a bucket, and one more for the batch that is left.
    assert len(tokens.shapes(plans["buckets"])) <= 64 / tokens.WIDTH + 1
    widths = {width for _, width in tokens.shapes(plans["buckets"])}
    assert widths <= set(range(8, 65, 8))
    assert all(width >= lengths[part].max() for part, width in plans["buckets"])


def test_a_longest_that_is_no_multiple_bounds_the_buckets():
    lengths = torch.tensor([18, 20, 3])
    assert {width for _, width in plan_batches(lengths, 1, "buckets", 20)} == {20, 8}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Bert(bert.configuration("tiny")).eval()


def test_padding_changes_no_logits(model, tokenizer):
    """A sentence alone, and filled up beside a longer one, is judged alike."""
    encoded = encode(tokenizer, TEXTS, torch.zeros(4), 64)
    with torch.no_grad():
        together = model(encoded.ids)
        for row, length, padded in zip(encoded.ids, encoded.lengths, together, strict=True):
            alone = model(row[None, :length])[0]
            assert torch.allclose(alone, padded, atol=1e-5)


def test_without_the_mask_padding_would_change_them(model, tokenizer):
    encoded = encode(tokenizer, TEXTS, torch.zeros(4), 64)
    with torch.no_grad():
        unmasked = model.inner(input_ids=encoded.ids).logits
        assert not torch.allclose(unmasked, model(encoded.ids), atol=1e-3)


def test_the_mask_is_the_one_that_transformers_makes(model, tokenizer):
    ids = encode(tokenizer, TEXTS, torch.zeros(4), 32).ids
    with torch.no_grad():
        theirs = model.inner(input_ids=ids, attention_mask=(ids != 0).long()).logits
        assert torch.allclose(model(ids), theirs, atol=1e-6)


def test_base_is_bert_base():
    with torch.device("meta"):
        ours = Bert(bert.configuration("base"))
        theirs = BertForSequenceClassification(BertConfig())
    assert [p.shape for p in ours.parameters()] == [p.shape for p in theirs.parameters()]
    assert sum(p.numel() for p in ours.inner.bert.parameters()) == 109_482_240


def test_the_rate_rises_to_the_peak_and_falls_to_nothing_in_straight_lines(good_and_bad):
    def rates(recipe):
        training = text.prepare(recipe, good_and_bad)
        group = training.optimizer.param_groups[0]
        seen = [group["lr"]]
        for _ in range(recipe.epochs):
            for _ in range(len(training.batches)):
                training.optimizer.step()
                training.scheduler.step()
                seen.append(group["lr"])
        return seen

    # 24 steps, of which a quarter warms up.
    recipe = replace(TINY, warm_up=0.25)
    rising = [TINY.peak_rate * step / 6 for step in range(6)]
    falling = [TINY.peak_rate * (24 - step) / 18 for step in range(6, 25)]
    assert rates(recipe) == pytest.approx(rising + falling)
    flat = rates(text.without(recipe, "warm-up"))
    assert flat == pytest.approx([TINY.peak_rate * (24 - step) / 24 for step in range(25)])


def test_each_part_can_be_taken_away_and_only_that():
    recipe = Recipe()
    for part in text.PARTS:
        less = text.without(recipe, part)
        changed = [name for name in vars(recipe) if getattr(less, name) != getattr(recipe, name)]
        assert len(changed) == 1, part


def test_matrices_decay_and_biases_and_norms_do_not(model):
    decaying, others = text.decayed(model, 0.01)
    assert decaying["weight_decay"] == 0.01 and others["weight_decay"] == 0
    names = {id(p): name for name, p in model.named_parameters()}
    assert all(names[id(p)].endswith("weight") for p in decaying["params"])
    assert all("LayerNorm" in names[id(p)] or "bias" in names[id(p)] for p in others["params"])
    assert len(decaying["params"]) + len(others["params"]) == len(names)


def test_gradients_are_clipped_before_the_step(good_and_bad):
    training = text.prepare(replace(TINY, clip=0.01), good_and_bad)
    seen = []

    def note(*_):
        norms = [p.grad.norm() for p in training.model.parameters()]
        seen.append(torch.stack(norms).norm().item())

    training.optimizer.register_step_post_hook(note)
    training.epoch()
    assert len(seen) == 8
    assert all(norm == pytest.approx(0.01, rel=0.01) for norm in seen)


def test_nothing_is_read_from_the_device_within_a_step(good_and_bad):
    counts = []
    for batch_size in (32, 8):
        recipe = replace(TINY, batch_size=batch_size, padding="fixed")
        # Without a fused kernel, AdamW reads its own count of steps, which lies on the CPU.
        training = text.prepare(recipe, good_and_bad, options=Options(fused=True))
        with Reads() as reads:
            training.epoch()
        counts.append(reads.count)
    assert counts[0] == counts[1], "as often with 2 steps in the epoch as with 8"


def test_a_run_learns_what_one_word_tells_and_scores_every_epoch(good_and_bad):
    lines = []
    done = text.run(TINY, good_and_bad, good_and_bad, report=lines.append)
    assert done.scores[-1] == 1.0
    assert len(done.scores) == len(done.trained) == len(done.seconds) == len(lines) == 3
    # The page of a device that measures nothing shows these lines, too.
    assert not any(line.endswith(" s") for line in lines)
    kept = done.kept(5)
    assert kept.seed == 5 and kept.scores == tuple(done.scores)


def test_the_seed_decides_a_run(good_and_bad):
    recipe = replace(TINY, epochs=2)

    def weights(seed):
        done = text.run(recipe, good_and_bad, good_and_bad, seed, report=None)
        return nn.utils.parameters_to_vector(done.model.parameters())

    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))


def test_each_epoch_draws_its_own_dropout(good_and_bad, monkeypatch):
    training = text.prepare(TINY, good_and_bad)
    drawn = []
    monkeypatch.setattr(
        text.train, "seed_everything", lambda seed: drawn.append(seed) or torch.manual_seed(seed)
    )
    training.epoch()
    training.epoch()
    assert len(set(drawn)) == 2


@pytest.fixture(scope="module")
def folder(model, tokenizer, tmp_path_factory):
    """Pretrained weights with their tokenizer, as the hub has them."""
    place = tmp_path_factory.mktemp("weights")
    model.inner.save_pretrained(place)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(place)
    return place


def test_pretrained_weights_are_where_a_run_starts(folder, model, tokenizer, good_and_bad):
    recipe = replace(TINY, pretrained=str(folder))
    training = text.prepare(recipe, good_and_bad)
    assert torch.equal(
        training.model.inner.bert.embeddings.word_embeddings.weight,
        model.inner.bert.embeddings.word_embeddings.weight,
    )
    theirs = text.tokenizer(recipe, [])
    assert isinstance(theirs, Tokenizer)
    assert theirs.encode(TEXTS[0]).ids == tokenizer.encode(TEXTS[0]).ids
    assert str(folder) in str(recipe)


def test_weights_that_are_not_there_are_refused_in_a_line(tmp_path, good_and_bad):
    recipe = replace(TINY, pretrained=str(tmp_path / "none"))
    for ask in (lambda: text.tokenizer(recipe, []), lambda: text.prepare(recipe, good_and_bad)):
        with pytest.raises(DataError, match="no pretrained BERT") as raised:
            ask()
        assert "\n" not in str(raised.value)


def test_a_tokenizer_that_numbers_otherwise_is_refused(tmp_path, tokenizer):
    changed = tokenizer.to_str().replace('"[PAD]":0', '"[PAD]":1').replace('"[UNK]":1', '"[UNK]":0')
    assert changed != tokenizer.to_str()
    other = Tokenizer.from_str(changed)
    PreTrainedTokenizerFast(tokenizer_object=other).save_pretrained(tmp_path)
    with pytest.raises(DataError, match="none of BERT's"):
        bert.pretrained_tokenizer(str(tmp_path))
