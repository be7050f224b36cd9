"""Models and steps: every option computes what the plain step computes."""

import copy

import pytest
import torch
from torch import nn
from torchvision.models import VisionTransformer
from transformers import BertConfig, BertForSequenceClassification

from macgpu.measure.steps import Options, TrainStep, ladder, precisions
from macgpu.models import CASES, PackedAttention, pack_bert, pack_vit

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("device", "name", "rungs"),
    [
        ("cpu", "resnet50", ["float32"]),
        ("mps", "resnet50", ["float32", "bfloat16 autocast", "channels_last", "fused optimizer"]),
        ("mps", "bert-128", ["float32", "bfloat16 autocast", "fused optimizer"]),
        (
            "cuda",
            "resnet50",
            [
                "float32",
                "tf32",
                "bfloat16 autocast",
                "channels_last",
                "fused optimizer",
                "torch.compile",
                "CUDA graphs",
            ],
        ),
    ],
)
def test_a_ladder_adds_one_option_at_a_time(device, name, rungs):
    steps = ladder(CASES[name], torch.device(device))
    assert [rung for rung, _ in steps] == rungs
    assert steps[0][1] == Options()
    for (_, before), (_, after) in zip(steps, steps[1:], strict=False):
        changed = [f for f in vars(after) if getattr(before, f) != getattr(after, f)]
        assert len(changed) == 1


@pytest.mark.parametrize(
    ("options", "within"),
    [
        (Options(channels_last=True, fused=True), 1e-5),
        (Options(autocast="bfloat16"), 5e-3),
        (Options(autocast="float16"), 5e-3),
    ],
)
def test_an_option_changes_the_speed_and_not_the_losses(options, within):
    plain, tuned = (TrainStep(CASES["cnn"], CPU, o, 8) for o in (Options(), options))
    for _ in range(4):
        plain(), tuned()
    assert len(plain.first_losses()) == 4
    assert tuned.first_losses() == pytest.approx(plain.first_losses(), rel=within)
    assert plain.first_losses()[-1] < plain.first_losses()[0]


def test_float16_is_scaled_and_other_types_are_not():
    half = TrainStep(CASES["mlp"], CPU, Options(autocast="float16"), 4)
    plain = TrainStep(CASES["mlp"], CPU, Options(autocast="bfloat16"), 4)
    for step in (half, plain):
        for _ in range(3):
            step()
    assert half.scaler.get_scale() == 2.0**12, "none of the first steps is skipped"
    assert not plain.scaler.is_enabled()
    # An overflow: the step leaves the weights alone and lowers the scale.
    half.batch[0].fill_(float("inf"))
    before = [parameter.clone() for parameter in half.model.parameters()]
    half()
    assert half.scaler.get_scale() == 2.0**11
    assert all(map(torch.equal, before, half.model.parameters()))


@pytest.mark.parametrize(
    ("device", "names"),
    [
        ("cpu", ["float32", "float16", "bfloat16"]),
        ("mps", ["float32", "float16", "bfloat16"]),
        ("cuda", ["float32", "tf32", "float16", "bfloat16"]),
    ],
)
def test_precisions_change_the_data_type_alone(device, names):
    steps = precisions(torch.device(device))
    assert [name for name, _ in steps] == [options.peak for _, options in steps] == names
    assert not any(options.tuned for _, options in steps)


def small_vit():
    model = VisionTransformer(32, 8, num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=64)
    nn.init.normal_(model.heads.head.weight)
    return model, pack_vit, torch.randn(3, 3, 32, 32).double()


def small_bert():
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(vocab_size=100, intermediate_size=64, **sizes, **off)
    return BertForSequenceClassification(config), pack_bert, torch.randint(100, (3, 16))


@pytest.mark.parametrize("make", [small_vit, small_bert])
def test_packed_attention_computes_what_the_original_does(make):
    model, pack, x = make()
    model = model.double().train()
    packed = pack(copy.deepcopy(model))
    outputs = []
    for network in (model, packed):
        output = network(x)
        outputs.append(getattr(output, "logits", output))
        outputs[-1].square().sum().backward()
    assert torch.allclose(*outputs, rtol=1e-10)
    originals = dict(model.named_parameters())
    for name, parameter in packed.named_parameters():
        if name in originals:
            assert torch.allclose(parameter.grad, originals[name].grad, rtol=1e-8, atol=1e-12)
    kinds = [type(module) for module in packed.modules()]
    assert kinds.count(PackedAttention) == 2
    assert sum(p.numel() for p in packed.parameters()) == sum(p.numel() for p in model.parameters())


def test_models_and_batches_come_from_the_seed_alone():
    case = CASES["cnn"]
    torch.manual_seed(1)
    one = case.build(), case.batch(4)
    torch.manual_seed(2)
    two = case.build(), case.batch(4)
    assert torch.equal(one[0][0].weight, two[0][0].weight)
    assert torch.equal(one[1][0], two[1][0]) and torch.equal(one[1][1], two[1][1])
    assert not torch.equal(case.batch(4, seed=1)[0], two[1][0])


@pytest.mark.parametrize("name", ["mlp", "cnn", "encoder", "resnet18"])
def test_every_case_gives_logits_for_its_classes(name):
    case = CASES[name]
    inputs, labels = case.batch(2)
    assert case.build()(inputs).shape == (2, case.classes)
    assert labels.shape == (2,) and labels.max() < case.classes
