"""Generating pictures: networks, losses, an iteration, a run, and the generator's file."""

import math
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn.utils import parameters_to_vector
from torch.utils._python_dispatch import TorchDispatchMode

from macgpu import checkpoints, cli
from macgpu.checkpoints import CheckpointError
from macgpu.data import DataError, Pictures
from macgpu.jobs import gan, generator
from macgpu.jobs.gan import Recipe
from macgpu.jobs.generator import Card
from macgpu.measure.steps import Options

TINY = Recipe(iterations=4, width=4, latent=6, batch_size=8, averaged=0.5)
CARD = Card(1, 8, 4, 6, "drawn at random")


@pytest.fixture(scope="module")
def pictures():
    """20 grey pictures of 8 by 8 pixels."""
    pixels = torch.randint(256, (20, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    return Pictures(pixels.to(torch.uint8), torch.zeros(20, dtype=torch.int64))


def weights(model):
    return parameters_to_vector(model.parameters()).detach().clone()


@pytest.mark.parametrize(("channels", "side"), [(1, 28), (3, 32)])
def test_pictures_and_scores_have_the_shape_of_the_data(channels, side):
    maker = gan.generator(channels, side, width=4, latent=6)
    made = maker(torch.randn(5, 6))
    assert made.shape == (5, channels, side, side)
    assert made.abs().max() <= 1
    for spectral in (True, False):
        assert gan.discriminator(channels, side, 4, spectral)(made).shape == (5,)


def test_a_side_that_two_doublings_do_not_reach_is_refused():
    for make in (gan.generator, gan.discriminator):
        with pytest.raises(ValueError, match="30 pixels: the side must be a multiple of 4"):
            make(1, 30)


def test_bytes_go_to_the_networks_scale_and_back():
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    scaled = gan.scaled(images)
    assert scaled.flatten()[[0, -1]].tolist() == [-1, 1]
    assert torch.equal(gan.as_bytes(scaled), images)
    # A network may leave the range by a rounding, and half precision is coarse.
    assert gan.as_bytes(torch.tensor([1.001, -1.2])).tolist() == [255, 0]


def test_the_losses_are_those_of_the_papers():
    real, made = torch.tensor([2.0, -0.5]), torch.tensor([0.5, -3.0])
    usual, hinge = gan.LOSSES["usual"], gan.LOSSES["hinge"]

    def log_probability(score):
        return math.log(1 / (1 + math.exp(-score)))

    judging = -(log_probability(2) + log_probability(-0.5)) / 2
    judging -= (log_probability(-0.5) + log_probability(3)) / 2
    assert usual.judging(real, made).item() == pytest.approx(judging)
    fooling = -(log_probability(0.5) + log_probability(-3)) / 2
    assert usual.fooling(made).item() == pytest.approx(fooling)
    # max(0, 1 - real): 0 and 1.5; max(0, 1 + made): 1.5 and 0.
    assert hinge.judging(real, made).item() == pytest.approx(1.5 / 2 + 1.5 / 2)
    assert hinge.fooling(made).item() == pytest.approx(2.5 / 2)


def test_spectral_norm_bounds_the_largest_singular_value(pictures):
    torch.manual_seed(0)
    network = gan.discriminator(1, 8, 4, spectral=True)
    with torch.no_grad():
        for layer in network:
            if isinstance(layer, nn.Conv2d):
                layer.parametrizations.weight.original.mul_(30)
        for _ in range(50):  # each call brings the estimate nearer
            network(gan.scaled(pictures.images))
    for layer in network.eval():
        if isinstance(layer, nn.Conv2d):
            largest = torch.linalg.matrix_norm(layer.weight.flatten(1), 2).item()
            assert largest == pytest.approx(1, abs=0.02)
    plain = gan.discriminator(1, 8, 4, spectral=False)
    assert sum(isinstance(layer, nn.BatchNorm2d) for layer in plain) == 1
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in network)


def test_an_update_changes_the_network_that_it_is_of_and_no_other(pictures):
    training = gan.prepare(TINY, pictures)
    both = training.generator, training.discriminator
    made = training.generate(training.latent())
    before = [weights(model) for model in both]
    training.update_discriminator(made.detach())
    after = [weights(model) for model in both]
    assert torch.equal(before[0], after[0]) and not torch.equal(before[1], after[1])
    training.update_generator(made)
    last = [weights(model) for model in both]
    assert not torch.equal(after[0], last[0]) and torch.equal(after[1], last[1])
    # Nothing is left over that the next update would add up.
    assert all(p.grad is None and p.requires_grad for model in both for p in model.parameters())


def test_each_network_lowers_its_own_loss(pictures):
    recipe = replace(TINY, loss="usual", generator_rate=0.01, discriminator_rate=0.01)
    training = gan.prepare(recipe, pictures)
    made = training.generate(training.latent()).detach()
    judged = [training.update_discriminator(made).item() for _ in range(30)]
    assert judged[-1] < 0.7 * judged[0]
    numbers = training.latent()
    fooled = [training.update_generator(training.generate(numbers)).item() for _ in range(30)]
    assert fooled[-1] < 0.7 * fooled[0]


def test_every_batch_is_whole_in_each_pass(pictures):
    # A smaller one would be compiled anew, and 20 pictures leave 4 over.
    training = gan.prepare(TINY, pictures)
    assert [len(next(training.reals)) for _ in range(7)] == [8] * 7


def test_the_networks_begin_and_move_as_in_the_paper(pictures):
    training = gan.prepare(replace(TINY, width=32), pictures)
    for model in (training.generator, training.discriminator):
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                assert parameter.std().item() == pytest.approx(0.02, rel=0.1), name
    assert {group["betas"] for o in training.optimizers for group in o.param_groups} == {
        (0.5, 0.999)
    }


@pytest.mark.parametrize("spectral", [True, False])
def test_real_and_made_pictures_are_scored_as_if_apart(pictures, spectral):
    torch.manual_seed(0)
    judge = gan.discriminator(1, 8, 4, spectral)
    if spectral:
        # Its estimate of a singular value moves with each call in training mode.
        judge.eval()
    loss, made = gan.LOSSES["hinge"], torch.rand(20, 1, 8, 8)
    _, judging, _ = gan.computed(None, judge, loss, torch.device("cpu"), Options())
    apart = loss.judging(judge(gan.scaled(pictures.images)), judge(made))
    torch.testing.assert_close(judging(pictures.images, made), apart)


class Reads(TorchDispatchMode):
    """Counts how often a number is read from a tensor, which waits for the device."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func == torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def test_nothing_is_read_from_the_device_within_an_iteration(pictures):
    # Adam without a fused kernel counts its steps on the CPU, and reads that.
    training = gan.prepare(TINY, pictures, options=Options(fused=True))
    training.step()
    with Reads() as reads:
        for _ in range(5):
            training.step()
    assert reads.count == 0


def test_the_asked_generator_is_the_average_where_the_recipe_averages(pictures):
    done = gan.prepare(TINY, pictures)
    for _ in range(TINY.iterations):
        done.step()
    assert not torch.equal(weights(done.asked), weights(done.generator))
    # Half of 4 iterations: over about two, so each counts a half of what comes after it.
    plain = gan.prepare(replace(TINY, averaged=None), pictures)
    expected = None
    for _ in range(TINY.iterations):
        plain.step()
        new = weights(plain.generator)
        expected = new if expected is None else (expected + new) / 2
    assert plain.asked is plain.generator
    assert torch.allclose(weights(done.asked), expected, atol=1e-6)


def test_a_run_is_looked_at_where_it_was_asked_for_and_at_its_end(pictures):
    seen = {}
    start = time.perf_counter()
    done = gan.run(TINY, pictures, looks=(1, 3), look=seen.__setitem__)
    whole = time.perf_counter() - start
    assert list(seen) == list(done.looks) == [1, 3, 4]
    assert all(model is done.generator for model in seen.values()), "that which is asked"
    assert len(done.seconds) == 3 and all(seconds > 0 for seconds in done.seconds)
    assert sum(done.seconds) < whole
    assert done.losses.shape == (4, 2) and done.losses.isfinite().all()


def test_the_seed_decides_a_run_and_a_look_does_not_change_it(pictures):
    def end(seed, look=None):
        looks = (2,) if look else ()
        return weights(gan.run(TINY, pictures, seed, looks=looks, look=look).generator)

    def look(_, model):
        gan.sample(model, gan.latents(3, 6, seed=1))

    assert torch.equal(end(0), end(0)) and torch.equal(end(0), end(0, look))
    assert not torch.equal(end(0), end(1))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"loss": "wasserstein"}, "no loss 'wasserstein': choose usual or hinge"),
        ({"iterations": 0}, "iterations must be at least 1, not 0"),
        ({"width": 0}, "width must be at least 1"),
        ({"latent": -2}, "latent must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"generator_rate": 0.0}, "generator_rate must be above 0"),
        ({"discriminator_rate": math.nan}, "discriminator_rate must be above 0"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(change, said):
    with pytest.raises(ValueError, match=said):
        replace(TINY, **change)


def test_a_run_that_cannot_be_is_refused(pictures):
    with pytest.raises(ValueError, match="20 pictures make no batch of 32"):
        gan.run(replace(TINY, batch_size=32), pictures)
    for looks in ((0,), (9,)):
        with pytest.raises(ValueError, match="between 1 and 4"):
            gan.run(TINY, pictures, looks=looks)


def test_a_picture_depends_on_its_own_numbers_alone():
    torch.manual_seed(0)
    maker = gan.generator(1, 8, 4, 6)
    numbers = gan.latents(7, 6)
    together = gan.sample(maker, numbers)
    assert maker.training, "left as it was"
    gan.sample(maker.eval(), numbers)
    assert not maker.training, "left as it was"
    maker.train()
    alone = torch.cat([gan.sample(maker, each[None]) for each in numbers])
    assert (together.int() - alone.int()).abs().max() <= 1
    assert maker.training, "left in the mode that it was in"


def test_the_way_between_two_latents_keeps_their_norm():
    start, end = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 3.0])
    way = gan.between(start, end, 3)
    assert torch.allclose(way[[0, -1]], torch.stack([start, end]), atol=1e-6)
    assert way[1].tolist() == pytest.approx([3 / 2**0.5] * 2)
    assert gan.between(start, start, 3).tolist() == [[3, 0]] * 3
    assert gan.between(start, -start, 3).isfinite().all()


@pytest.fixture
def file(tmp_path):
    torch.manual_seed(0)
    maker = gan.generator(1, 8, 4, 6)
    with torch.no_grad():
        maker[-2].weight.mul_(50)
        for _ in range(30):
            # Statistics that differ from those of a new network, as after training.
            maker(torch.randn(16, 6))
    generator.save(tmp_path / "maker.pt", maker, CARD)
    return tmp_path / "maker.pt"


def test_another_process_makes_the_same_pictures(file, tmp_path):
    program = (
        "import sys, numpy; from macgpu.jobs import generator; "
        "numpy.save(sys.argv[2], generator.load(sys.argv[1]).of_seed(5, 9).numpy())"
    )
    out = tmp_path / "out.npy"
    subprocess.run([sys.executable, "-c", program, str(file), str(out)], check=True)
    loaded = generator.load(file)
    assert loaded.card == CARD
    assert np.array_equal(np.load(out), loaded.of_seed(5, 9).numpy())
    assert not torch.equal(loaded.of_seed(5, 9), loaded.of_seed(6, 9))


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        (torch.randn(2, 5), r"shape \(2, 5\): the generator takes rows of 6"),
        (torch.randn(6), "rows of 6"),
        (torch.randn(0, 6), "rows of 6"),
        (torch.ones(1, 6, dtype=torch.int64), "finite and floating-point"),
        (torch.full((1, 6), math.nan), "finite"),
    ],
)
def test_numbers_that_are_no_latent_are_refused(file, numbers, said):
    with pytest.raises(DataError, match=said) as raised:
        generator.load(file).pictures(numbers)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("seed", "count", "said"),
    [(-1, 1, "seed -1"), ("x", 1, "seed 'x'"), (1, 0, "0 pictures"), (1, 10**9, "10,000")],
)
def test_a_seed_or_a_count_that_is_none_is_refused(file, seed, count, said):
    with pytest.raises(DataError, match=said) as raised:
        generator.load(file).of_seed(seed, count)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"width": "wide"}, "describes no network"),
        ({"side": 30}, "describes no network"),
        ({"width": 8}, "of another model"),
        ({"more": 1}, "no generator's card"),
    ],
)
def test_a_file_whose_card_does_not_fit_is_refused(file, change, said):
    content = checkpoints.read(file)
    content["progress"]["generator"].update(change)
    checkpoints.write(file, {key: content[key] for key in ("parts", "progress")})
    with pytest.raises(CheckpointError, match=f"maker.pt: .*{said}") as raised:
        generator.load(file)
    assert "\n" not in str(raised.value)


def test_a_sheet_has_the_pictures_row_by_row():
    numbers = torch.arange(3, dtype=torch.uint8)[:, None, None, None].expand(3, 1, 2, 2)
    grey = np.array(generator.sheet(numbers + 1, columns=2))
    assert grey.tolist() == [[1, 1, 2, 2]] * 2 + [[3, 3, 0, 0]] * 2
    assert generator.sheet(numbers.expand(3, 3, 2, 2)).mode == "RGB"


def run(capsys, *arguments):
    """The exit status of ``macgpu`` with these arguments, and what it says on both streams."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["macgpu", *map(str, arguments)])
        cli.main()
    return ended.value.code, capsys.readouterr()


def test_the_command_writes_the_pictures_of_a_seed(file, tmp_path, capsys):
    status, said = run(capsys, "generate", file, tmp_path / "a.png", "--seed", 3, "--count", 10)
    assert status == 0 and "64×16" in said.out
    written = np.array(Image.open(tmp_path / "a.png"))
    assert np.array_equal(written, np.array(generator.sheet(generator.load(file).of_seed(3, 10))))


def test_the_command_refuses_in_one_line(file, tmp_path, capsys):
    out = tmp_path / "a.png"
    for arguments, named in (
        ((file, out, "--seed", -1), "seed -1"),
        ((file, out, "--count", 0), "0 pictures"),
        ((file, tmp_path / "a.txt"), "a.txt"),
        ((tmp_path / "none.pt", out), "none.pt"),
        ((file, tmp_path / "none" / "a.png"), f"there is no folder {tmp_path / 'none'} to write"),
    ):
        status, said = run(capsys, "generate", *arguments)
        assert status == 1 and said.err.count("\n") == 1 and named in said.err
    assert not out.exists()
