"""The comparer names the layer where an error was planted, and none where there is none."""

import copy

import pytest
import torch
from torch import nn
from torchvision.models import resnet18

from macgpu.layer_compare import compare_layers, twins
from macgpu.models import Encoder

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return resnet18(num_classes=10)


@pytest.fixture(scope="module")
def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(4, 3, 64, 64, generator=generator), torch.tensor([0, 3, 7, 9])


class WrongBackward(torch.autograd.Function):
    """Gives what it gets; its gradient is a tenth too large."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return 1.1 * gradient


def off_by(share):
    return lambda module, inputs, output: output * (1 + share)


def test_a_right_model_departs_nowhere_and_is_left_as_it_was(network, batch):
    reference, suspect = twins(network, CPU)
    before = copy.deepcopy(suspect.state_dict())
    found = compare_layers(reference, suspect, batch)
    assert found.first_output is None and found.first_gradient is None
    # Every module is looked at once, but for the ReLU that each of eight blocks calls twice.
    assert len(found.outputs) == len(found.gradients) == len(list(network.modules())) + 8
    assert all(parameter.grad is None for parameter in suspect.parameters())
    assert not any(module._forward_hooks for module in suspect.modules())
    weights = {name: value for name, value in before.items() if "running" not in name}
    assert all(
        torch.equal(suspect.state_dict()[n], w) for n, w in weights.items() if "num" not in n
    )


# What `bn2` gives, the block then adds to in place.
@pytest.mark.parametrize("name", ["layer2.1.conv1", "layer2.1.bn2", "layer3.0.downsample.1"])
def test_an_error_planted_in_the_middle_is_named(network, batch, name):
    reference, suspect = twins(network, CPU)
    suspect.get_submodule(name).register_forward_hook(off_by(0.002))
    found = compare_layers(reference, suspect, batch)
    assert found.first_output.layer == name
    assert found.first_output.error == pytest.approx(0.002, rel=0.01)
    assert "layer" in str(found.first_output) and "0.002" in str(found.first_output)


def test_an_error_in_the_code_of_a_block_is_the_blocks(network, batch):
    reference, suspect = twins(network, CPU)
    block = suspect.layer3[1]
    forward = block.forward
    block.forward = lambda x: forward(x) + 0.01 * x
    found = compare_layers(reference, suspect, batch)
    assert found.first_output.layer == "layer3.1"


# The second shares its input with `layer3.0.downsample.0`, whose own backward is right.
@pytest.mark.parametrize("name", ["layer2.1.conv2", "layer3.0.conv1"])
def test_an_error_planted_in_a_backward_is_named(network, batch, name):
    reference, suspect = twins(network, CPU)
    wrong = suspect.get_submodule(name)
    wrong.register_forward_hook(lambda module, inputs, output: WrongBackward.apply(output))
    found = compare_layers(reference, suspect, batch)
    assert found.first_output is None
    assert found.first_gradient.layer == name
    assert found.first_gradient.error == pytest.approx(0.1, rel=0.01)
    # What comes earlier in backward, nearer to the loss, is right.
    order = [check.layer for check in found.gradients]
    assert order.index("layer4.0.conv1") < order.index(name) < order.index("layer1.0")


def test_a_wrong_gradient_of_a_weight_alone_is_named(network, batch):
    reference, suspect = twins(network, CPU)
    suspect.layer2[0].conv1.weight.register_hook(lambda gradient: 1.1 * gradient)
    found = compare_layers(reference, suspect, batch)
    assert found.first_output is None
    wrong = [check.layer for check in found.gradients if check.departs]
    assert wrong == ["layer2.0.conv1"]


def test_the_first_nan_is_named(network, batch):
    reference, suspect = twins(network, CPU)
    suspect.layer3[0].bn1.register_forward_hook(off_by(float("nan")))
    assert compare_layers(reference, suspect, batch).first_output.layer == "layer3.0.bn1"


def test_a_reference_in_float32_has_fixed_tolerances(network, batch):
    reference, suspect = copy.deepcopy(network), copy.deepcopy(network)
    found = compare_layers(reference, suspect, batch)
    assert {check.allowed for check in found.outputs} == {1e-4}
    assert {check.allowed for check in found.gradients} == {1e-2}
    assert found.first_output is None
    suspect.layer4[0].conv1.register_forward_hook(off_by(0.001))
    assert compare_layers(reference, suspect, batch).first_output.layer == "layer4.0.conv1"


class Ill(nn.Module):
    """Loses digits: subtracts nearly equal numbers, which float32 cannot do well."""

    def forward(self, x):
        return (x + 1e5) - 1e5


def test_a_layer_that_rounds_much_is_allowed_more():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), Ill(), nn.Linear(8, 3))
    batch = torch.randn(5, 12), torch.tensor([0, 1, 2, 0, 1])
    reference, suspect = twins(model, CPU)
    # Other digits are lost than the reference's run in float32 loses.
    suspect[2].forward = lambda x: (x + 1.7e5) - 1.7e5
    found = compare_layers(reference, suspect, batch)
    ill = next(check for check in found.outputs if check.kind == "Ill")
    assert ill.error > 1e-4 and not ill.departs
    assert found.first_output is None
    suspect[1].register_forward_hook(off_by(0.001))
    assert compare_layers(reference, suspect, batch).first_output.layer == "1"


def test_tokens_and_layers_that_give_tuples_are_followed():
    torch.manual_seed(0)
    reference, suspect = twins(Encoder(vocabulary=50, length=8, width=32), CPU)
    batch = torch.randint(50, (2, 8)), torch.tensor([1, 2])
    assert compare_layers(reference, suspect, batch).first_output is None
    suspect.layers.layers[3].self_attn.in_proj_weight.register_hook(lambda g: 1.1 * g)
    found = compare_layers(reference, suspect, batch)
    assert found.first_gradient.layer == "layers.layers.3.self_attn"


class Noisy(nn.Module):
    """Drops values by a function, which no list of modules shows."""

    def forward(self, x):
        return nn.functional.dropout(x, 0.5)


def test_active_dropout_and_other_layers_are_refused():
    batch = torch.randn(4, 6), torch.tensor([0, 1, 2, 0])
    model = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5))
    with pytest.raises(ValueError, match="dropout is active"):
        compare_layers(*twins(model, CPU), batch)
    assert compare_layers(*twins(model.eval(), CPU), batch).first_output is None
    hidden = nn.Sequential(nn.Linear(6, 3), Noisy())
    with pytest.raises(ValueError, match=r"1 \(Noisy\) differs between two equal runs"):
        compare_layers(*twins(hidden, CPU), batch)
    with pytest.raises(ValueError, match="do not run the same layers"):
        compare_layers(model.double(), model[:1].float(), batch)


@pytest.fixture
def small():
    """A small network and its batch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    return model, (torch.randn(4, 6), torch.tensor([0, 1, 2, 0]))


def left_behind(model):
    """Hooks and gradients on a model."""
    hooks = [hook for m in model.modules() for hook in (*m._forward_hooks, *m._forward_pre_hooks)]
    return hooks + [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("labels", [[0, 1, 2, 0], [0, 1, 2, 7]])
def test_no_hooks_are_left_even_after_an_error(small, labels):
    model, (inputs, _) = small
    reference, suspect = twins(model, CPU)
    if 7 in labels:
        with pytest.raises(IndexError, match="out of bounds"):
            compare_layers(reference, suspect, (inputs, torch.tensor(labels)))
    else:
        compare_layers(reference, suspect, (inputs, torch.tensor(labels)))
    assert left_behind(reference) == left_behind(suspect) == []


def test_no_hooks_are_left_where_the_suspect_alone_fails(small):
    model, batch = small
    reference, suspect = twins(model, CPU)

    def failing(x):
        raise NotImplementedError("no such operator here")

    suspect[1].forward = failing
    with pytest.raises(NotImplementedError):
        compare_layers(reference, suspect, batch)
    assert left_behind(reference) == left_behind(suspect) == []


# Nearest to the loss, the last layer lacks a gradient first, wherever the graph is cut.
@pytest.mark.parametrize("cut", ["0", "1", "2"])
def test_a_cut_graph_departs(small, cut):
    model, batch = small
    reference, suspect = twins(model, CPU)
    suspect.get_submodule(cut).register_forward_hook(lambda module, inputs, output: output.detach())
    found = compare_layers(reference, suspect, batch)
    assert found.first_output is None
    assert found.first_gradient.layer == "2"
    assert "a tensor is missing" in str(found.first_gradient)


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_a_dropped_gradient_of_one_parameter_departs(small, name):
    model, batch = small
    reference, suspect = twins(model, CPU)
    suspect[2].get_parameter(name).requires_grad_(False)
    found = compare_layers(reference, suspect, batch)
    assert [check.layer for check in found.gradients if check.departs] == ["2"]
    # A gradient too many is no less wrong.
    assert compare_layers(suspect, reference, batch).first_gradient.layer == "2"


class Two(nn.Module):
    """Works on two inputs, the second without gradient on a model that detaches it."""

    detached = False

    def forward(self, x):
        y = x.roll(1)
        return self.add(x, y.detach() if self.detached else y)

    def __init__(self):
        super().__init__()
        self.add = Add()


class Add(nn.Module):
    def forward(self, x, y):
        return x + y


def test_a_missing_gradient_of_one_of_two_inputs_departs(small):
    model, batch = small
    reference, suspect = twins(nn.Sequential(model, Two()), CPU)
    suspect[1].detached = True
    assert compare_layers(reference, suspect, batch).first_gradient.layer == "1.add"


class Masked(nn.Module):
    """Gives -inf for one value in three."""

    def forward(self, x):
        return x.masked_fill(torch.tensor([False, True, False]), float("-inf"))


def test_infinite_values_on_both_sides_are_equal_and_on_one_side_are_not(small):
    model, (inputs, _) = small
    batch = inputs, torch.tensor([0, 2, 2, 0])
    reference, suspect = twins(nn.Sequential(model, Masked()), CPU)
    found = compare_layers(reference, suspect, batch)
    assert found.first_output is None and found.first_gradient is None
    suspect[1].forward = lambda x: x.masked_fill(torch.tensor([False, True, False]), -1e9)
    wrong = compare_layers(reference, suspect, batch).first_output
    assert wrong.layer == "1"
    assert "a value is not finite" in str(wrong)
    # Finite values beside the mask are still compared.
    suspect[1].forward = lambda x: 1.01 * Masked()(x)
    assert compare_layers(reference, suspect, batch).first_output.layer == "1"


class Jittered(nn.Module):
    """Random by a thousandth; with `backward`, in its gradient alone."""

    def __init__(self, backward):
        super().__init__()
        self.backward = backward

    def forward(self, x):
        noise = 1 + 1e-3 * torch.rand(())
        if self.backward:
            x = x.clone()
            x.register_hook(lambda gradient: gradient * noise)
            return x
        return x * noise


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_little_randomness_is_refused(small, backward, dtype):
    model, batch = small
    reference, suspect = twins(nn.Sequential(model, Jittered(backward)), CPU)
    with pytest.raises(ValueError, match=r"\(Jittered\) differs between two equal runs"):
        compare_layers(reference.to(dtype), suspect, batch)


class Rough(nn.Module):
    """Right forward; its gradient is off by `share` in float32 alone."""

    def __init__(self, share):
        super().__init__()
        self.share = share

    def forward(self, x):
        if x.dtype == torch.float32 and x.requires_grad:
            x = x.clone()
            x.register_hook(lambda gradient: gradient * (1 + self.share))
        return x


def test_the_tolerance_of_gradients_has_an_end(small):
    model, batch = small
    reference, suspect = twins(nn.Sequential(model, Rough(0.3)), CPU)
    found = compare_layers(reference, suspect, batch)
    assert found.first_gradient is None
    assert max(check.allowed for check in found.gradients) == 0.5
    # Without an end, 3 would be allowed, and so would zeros or the wrong sign.
    suspect[1].share = -1.0
    assert compare_layers(reference, suspect, batch).first_gradient.layer == "1"
    reference[1].share = 0.7
    with pytest.raises(ValueError, match="differs too much from itself in float32"):
        compare_layers(reference, suspect, batch)


def test_tf32_is_off_meanwhile_and_then_as_before(small):
    model, batch = small
    reference, suspect = twins(model, CPU)
    backends, seen = (torch.backends.cuda.matmul, torch.backends.cudnn), []
    before = [backend.allow_tf32 for backend in backends]
    suspect[0].register_forward_hook(lambda *_: seen.extend(b.allow_tf32 for b in backends))
    try:
        for flags in ([True, False], [False, True], [True, True]):
            for backend, flag in zip(backends, flags, strict=True):
                backend.allow_tf32 = flag
            compare_layers(reference, suspect, batch)
            assert [backend.allow_tf32 for backend in backends] == flags
            with pytest.raises(IndexError):
                compare_layers(reference, suspect, (batch[0], batch[1] + 7))
            assert [backend.allow_tf32 for backend in backends] == flags
        assert seen and not any(seen)
    finally:
        for backend, flag in zip(backends, before, strict=True):
            backend.allow_tf32 = flag


def test_a_model_without_parameters_is_refused_in_words(small):
    _, batch = small
    with pytest.raises(ValueError, match="does not say on which device"):
        compare_layers(nn.Tanh(), nn.Tanh(), batch)


def test_a_layer_under_no_grad_is_followed(small):
    _, batch = small
    frozen = nn.Sequential(nn.Linear(6, 6), Frozen(), nn.Linear(6, 3))
    found = compare_layers(*twins(frozen, CPU), batch)
    assert found.first_output is None and found.first_gradient is None


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        with torch.no_grad():
            shift = self.layer(x)
        return x + shift
