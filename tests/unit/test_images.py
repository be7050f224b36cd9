"""The images job: the network, augmentation, the recipe's parts, training, calibration."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import torchvision
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from macgpu import data
from macgpu.data import DataError, Pictures
from macgpu.jobs import images
from macgpu.jobs.augment import Augmentation, Augmented, Normalise
from macgpu.jobs.calibration import confusion, reliability
from macgpu.jobs.forward import forward_of
from macgpu.jobs.images import Recipe
from macgpu.jobs.resnet import resnet18_small
from macgpu.measure.steps import Options

TINY = Recipe(epochs=3, width=8, batch_size=16, peak_rate=0.05, averaged=0.1)


@pytest.fixture(scope="module")
def bright_and_dark():
    """64 pictures of 8 by 8 pixels, of two classes that a glance tells apart."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(64) % 2
    noise = torch.randint(0, 60, (64, 1, 8, 8), generator=generator)
    return Pictures((noise + 180 * labels[:, None, None, None]).to(torch.uint8), labels)


def some(count, channels=1, side=8):
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(1, 256, (count, channels, side, side), generator=generator)
    return Pictures(pixels.to(torch.uint8), torch.arange(count) % 10)


def test_at_width_64_it_is_torchvisions_network_but_for_the_stem():
    torch.manual_seed(0)
    ours = resnet18_small(channels=3, classes=10, width=64)
    theirs = torchvision.models.resnet18(num_classes=10)
    theirs.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    theirs.maxpool = nn.Identity()
    # Both list their tensors from the stem to the head.
    weights = ours.state_dict().values()
    theirs.load_state_dict(dict(zip(theirs.state_dict(), weights, strict=True)))
    inputs = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        assert torch.equal(ours.eval()(inputs), theirs.eval()(inputs))


def test_a_narrower_network_is_another_one():
    counts = [sum(p.numel() for p in resnet18_small(width=w).parameters()) for w in (8, 64)]
    assert counts[0] < counts[1] / 60


def test_pictures_are_moved_and_mirrored_as_slices_say():
    pictures = some(40, channels=3, side=9)
    augmentation = Augmentation(padding=2)
    draws = augmentation.draw(40, (9, 9), torch.Generator().manual_seed(0))
    moved = augmentation.shift(pictures.images, draws)
    padded = np.pad(pictures.images.numpy(), ((0, 0), (0, 0), (2, 2), (2, 2)))
    for number, (down, right, mirrored, *_) in enumerate(draws.tolist()):
        expected = padded[number, :, down : down + 9, right : right + 9]
        expected = expected[:, :, ::-1] if mirrored else expected
        assert np.array_equal(moved[number].numpy(), expected)
    assert sorted(draws[:, 0].unique().tolist()) == [0, 1, 2, 3, 4]
    assert sorted(draws[:, 2].unique().tolist()) == [0, 1]


def test_the_square_is_cut_around_its_centre_and_at_the_border_too():
    augmentation = Augmentation(padding=0, flip=False, cutout=4)
    draws = torch.tensor([[0, 0, 0, 4, 5], [0, 0, 0, 0, 7]])
    cut = augmentation.cut(torch.ones(2, 2, 8, 8), draws)
    inside, border = torch.ones(8, 8), torch.ones(8, 8)
    inside[2:6, 3:7] = 0
    border[0:2, 5:8] = 0
    assert torch.equal(cut[0], inside.expand(2, 8, 8))
    assert torch.equal(cut[1], border.expand(2, 8, 8))


def test_without_augmentation_pictures_stay_as_they_are():
    pictures = some(10)
    off = images.without(Recipe(), "augmentation").augmentation
    draws = off.draw(10, (8, 8), torch.Generator().manual_seed(0))
    assert torch.equal(off.shift(pictures.images, draws), pictures.images)
    normalise = Normalise.of(pictures)
    batches = Augmented(pictures, 10, 0, normalise, off)
    (inputs, labels), *_ = batches
    by_label = inputs[labels.argsort()]
    assert torch.equal(by_label, normalise(pictures.images))


def test_compiled_the_pictures_and_their_loss_are_the_same(bright_and_dark):
    pictures, normalise = bright_and_dark, Normalise.of(bright_and_dark)
    change = Augmentation(padding=2, flip=True, cutout=3)
    size, ways = len(pictures) // 2, (True, False)
    passes = [list(Augmented(pictures, size, 0, normalise, change, way)) for way in ways]
    # A small network: to compile a ResNet for the CPU would take minutes.
    network = nn.Sequential(nn.Flatten(), nn.LazyLinear(2))
    network(pictures.images.float())
    options = [Options(compiled="default" if way else None) for way in ways]
    forwards = [forward_of(network, each, False, 0.1) for each in options]
    for (one, labels), (other, same) in zip(*passes, strict=True):
        torch.testing.assert_close(one, other)
        assert torch.equal(labels, same)
        torch.testing.assert_close(*(forward(one, labels) for forward in forwards))


def test_in_half_precision_layers_compute_in_it_and_loss_and_logits_are_float32():
    network, seen = nn.Linear(4, 2), []
    network.register_forward_hook(lambda _, inputs, output: seen.append(output.dtype))
    forward = forward_of(network, Options(autocast="bfloat16"), False)
    answers = forward(torch.ones(3, 4), torch.tensor([0, 1, 1]))
    assert seen == [torch.bfloat16]
    assert [answer.dtype for answer in answers] == [torch.float32] * 2


def test_scaling_gives_each_channel_no_mean_and_unit_variance():
    pictures = some(50, channels=3)
    pictures.images[:, 1] //= 4
    normalise = Normalise.of(pictures)
    pixels = pictures.images.double() / 255
    assert normalise.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist())
    assert normalise.std == pytest.approx(pixels.std((0, 2, 3), correction=0).tolist())
    scaled = normalise(pictures.images)
    assert scaled.dtype == torch.float32
    assert scaled.mean((0, 2, 3)).tolist() == pytest.approx([0, 0, 0], abs=1e-5)


def test_the_seed_decides_the_augmented_batches_and_each_pass_is_another():
    pictures = some(30)

    def epoch(batches):
        inputs, labels = zip(*batches, strict=True)
        return torch.cat(inputs), torch.cat(labels)

    first, again, other = (
        Augmented(pictures, 8, seed, Normalise.of(pictures), Augmentation(cutout=2))
        for seed in (3, 3, 4)
    )
    (one, labels), (two, _) = epoch(first), epoch(first)
    assert torch.equal(labels.bincount(), pictures.labels.bincount())
    assert not torch.equal(one, two)
    assert torch.equal(epoch(again)[0], one) and torch.equal(epoch(again)[0], two)
    assert not torch.equal(epoch(other)[0], one)


def test_a_pass_that_is_broken_off_does_not_change_the_next(bright_and_dark):
    normalise = Normalise.of(bright_and_dark)
    whole, broken = (
        Augmented(bright_and_dark, 8, 3, normalise, Augmentation(cutout=2)) for _ in range(2)
    )
    list(whole), list(broken)
    list(whole), next(iter(broken))
    for (one, _), (other, _) in zip(whole, broken, strict=True):
        assert torch.equal(one, other)


class Reads(TorchDispatchMode):
    """Counts how often a number is read from a tensor, which waits for the device."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func == torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def test_nothing_is_read_from_the_device_within_a_step(bright_and_dark):
    normalise = Normalise.of(bright_and_dark)
    counts = []
    for batch_size in (32, 8):
        recipe = replace(TINY, batch_size=batch_size, augmentation=Augmentation(cutout=2))
        training = images.prepare(recipe, bright_and_dark, normalise, classes=2)
        with Reads() as reads:
            training.epoch()
        counts.append(reads.count)
    assert counts[0] == counts[1], "as often with 2 steps in the epoch as with 8"


def test_the_asked_weights_are_the_moving_average_of_the_trained_ones(bright_and_dark):
    recipe = replace(TINY, averaged=0.5, epochs=2)
    training = images.prepare(recipe, bright_and_dark, Normalise.of(bright_and_dark), classes=2)
    # Eight steps, half of them: a time constant of four.
    decay, expected, seen = 1 - 1 / 4, None, []
    weight = training.model[0].weight
    training.optimizer.register_step_post_hook(lambda *_: seen.append(weight.detach().clone()))
    training.epoch()
    training.epoch()
    for value in seen:
        expected = value if expected is None else decay * expected + (1 - decay) * value
    assert len(seen) == 8
    assert torch.allclose(training.asked[0].weight, expected, atol=1e-7)
    assert not torch.allclose(training.asked[0].weight, weight, atol=1e-4)
    # Of the batch norm, the statistics are averaged and the counter is not.
    norm, asked = training.model[1], training.asked[1]
    assert asked.num_batches_tracked == norm.num_batches_tracked == 8
    assert not torch.equal(asked.running_mean, norm.running_mean)


def test_the_cycle_rises_to_the_peak_and_falls_to_nothing(bright_and_dark):
    def rates(recipe):
        training = images.prepare(recipe, bright_and_dark, Normalise.of(bright_and_dark), classes=2)
        group = training.optimizer.param_groups[0]
        seen = [group["lr"]]
        for _ in range(recipe.epochs):
            training.optimizer.register_step_post_hook(lambda *_: seen.append(group["lr"]))
            training.epoch()
            training.optimizer._optimizer_step_post_hooks.popitem()
        return seen

    cycle = rates(replace(TINY, epochs=5))
    assert max(cycle) == pytest.approx(TINY.peak_rate)
    assert 2 < cycle.index(max(cycle)) < 8
    assert cycle[0] < 0.1 * TINY.peak_rate and cycle[-1] < 0.01 * TINY.peak_rate
    flat = rates(images.without(TINY, "one-cycle rate"))
    assert flat == pytest.approx([TINY.peak_rate / 2] * len(flat))


@pytest.mark.parametrize("steps", range(1, 8))
def test_a_cycle_of_any_length_can_be_gone_through(bright_and_dark, steps):
    few = bright_and_dark.first(16)
    recipe = replace(TINY, epochs=steps)
    training = images.prepare(recipe, few, Normalise.of(few), classes=2)
    group, rates = training.optimizer.param_groups[0], []
    training.optimizer.register_step_pre_hook(lambda *_: rates.append(group["lr"]))
    for _ in range(steps):
        training.epoch()
    assert len(rates) == steps
    assert all(0 < rate <= TINY.peak_rate for rate in rates)
    assert rates[-1] < 0.01 * TINY.peak_rate


def test_each_part_can_be_taken_away_and_only_that():
    recipe = Recipe(augmentation=Augmentation(cutout=8))
    for part in images.PARTS:
        less = images.without(recipe, part)
        changed = [name for name in vars(recipe) if getattr(less, name) != getattr(recipe, name)]
        assert len(changed) == 1, part
    assert set(images.TRAINED) | set(images.AFTERWARDS) == set(images.PARTS)


def test_label_smoothing_reaches_the_loss(bright_and_dark):
    training = images.prepare(
        replace(TINY, label_smoothing=0.2),
        bright_and_dark,
        Normalise.of(bright_and_dark),
        classes=2,
    )
    inputs, labels = next(iter(training.batches))
    loss, logits = training.forward(inputs, labels)
    surprise = -logits.double().log_softmax(1)
    right = surprise.gather(1, labels[:, None]).mean().item()
    # Of two classes, a fifth that is spread evenly takes a tenth from the right one.
    assert loss.item() == pytest.approx(0.8 * right + 0.2 * surprise.mean().item(), rel=1e-5)


def test_a_run_learns_what_a_glance_tells_and_scores_every_epoch(bright_and_dark):
    lines = []
    done = images.run(
        TINY, bright_and_dark, bright_and_dark, seed=0, classes=2, report=lines.append
    )
    assert done.scores[-1] == 1.0
    assert len(done.scores) == len(done.seconds) == len(lines) == TINY.epochs
    assert set(done.without) == set(images.AFTERWARDS)
    # The page of a device that measures nothing shows these lines, too.
    assert not any(line.endswith(" s") for line in lines)
    assert all(seconds > 0 for seconds in done.seconds)


def test_the_seed_decides_a_run(bright_and_dark):
    recipe = replace(TINY, epochs=1)

    def weights(seed):
        done = images.run(recipe, bright_and_dark, bright_and_dark, seed, classes=2, report=None)
        return nn.utils.parameters_to_vector(done.model.parameters())

    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))


def test_the_last_score_alone_is_that_of_a_run():
    hard = some(48)
    done = images.run(TINY, hard, hard, seed=2, report=None)
    assert images.last_score(TINY, hard, hard, seed=2) == done.scores[-1]


def test_a_recipe_without_the_parts_afterwards_is_not_scored_without_them(bright_and_dark):
    recipe = replace(TINY, averaged=None, flip_at_test=False, epochs=1)
    done = images.run(recipe, bright_and_dark, bright_and_dark, classes=2, report=None)
    assert done.without == {}


def test_the_mirror_makes_a_model_blind_to_left_and_right():
    torch.manual_seed(0)
    model = images.WithMirror(resnet18_small(width=8)).eval()
    inputs = torch.randn(3, 1, 8, 8)
    with torch.no_grad():
        assert torch.allclose(model(inputs), model(inputs.flip(3)), atol=1e-5)
        assert not torch.allclose(model.model(inputs), model.model(inputs.flip(3)), atol=1e-3)


def test_a_data_set_of_another_name_is_refused(tmp_path):
    with pytest.raises(DataError, match="subset, fashion-mnist, cifar-10"):
        images.pictures("imagenet", tmp_path)
    assert len(images.pictures("subset", tmp_path)[0]) == 8000
    assert all(len(names) == 10 for names in images.NAMES.values())
    assert images.NAMES["subset"] == data.CLASSES


def test_confusions_are_counted_as_pandas_counts_them():
    rng = np.random.default_rng(0)
    labels, guesses = rng.integers(0, 4, (2, 200))
    ours = confusion(torch.tensor(labels), torch.tensor(guesses), 5)
    theirs = pd.crosstab(labels, guesses).reindex(range(5), fill_value=0)
    theirs = theirs.reindex(range(5), axis=1, fill_value=0)
    assert np.array_equal(ours.numpy(), theirs.to_numpy())


def binary(confidences):
    sure = torch.tensor(confidences, dtype=torch.float64)
    return torch.stack([sure, 1 - sure], 1)


def test_the_calibration_error_of_a_known_case():
    # All guesses are class 0 at 0.9, and 7 of 10 are right.
    labels = torch.tensor([0] * 7 + [1] * 3)
    found = reliability(binary([0.9] * 10), labels, bins=10)
    assert found.error == pytest.approx(0.2)
    # 0.9 is the upper edge of its bin.
    assert found.counts.tolist() == [0] * 8 + [10, 0]
    assert found.accuracy[8] == pytest.approx(0.7) and found.confidence[8] == pytest.approx(0.9)
    assert found.accuracy[0].isnan()


def test_under_and_over_confidence_do_not_cancel_between_bins():
    labels = torch.tensor([0, 0, 1, 1])
    found = reliability(binary([0.6, 0.6, 0.95, 0.95]), labels, bins=10)
    assert found.error == pytest.approx((0.4 + 0.95) / 2)


def test_sure_and_right_is_calibrated_and_sure_and_wrong_is_not():
    assert reliability(binary([1.0, 1.0]), torch.tensor([0, 0])).error == 0
    assert reliability(binary([1.0, 1.0]), torch.tensor([1, 1])).error == 1


def test_guesses_drawn_from_their_own_probabilities_are_nearly_calibrated():
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.rand(20_000, 5, generator=generator).softmax(1)
    labels = torch.multinomial(probabilities, 1, generator=generator)[:, 0]
    assert reliability(probabilities, labels).error < 0.02
    sharper = (3 * probabilities.log()).softmax(1)
    assert reliability(sharper, labels).error > 0.1
