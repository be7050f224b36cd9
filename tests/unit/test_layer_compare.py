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
    with pytest.raises(ValueError, match=r"1 \(Noisy\) differs .* from itself"):
        compare_layers(*twins(hidden, CPU), batch)
    with pytest.raises(ValueError, match="do not run the same layers"):
        compare_layers(model.double(), model[:1].float(), batch)
