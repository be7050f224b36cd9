"""Training on the device gives what training on the CPU gives."""

from __future__ import annotations

import copy

import pytest
import torch
from training_cases import CASES, Case, Decoder


def train(case: Case, model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], device: str):
    """The output, the gradients of the first step, and the state after three steps; on the CPU."""
    model = copy.deepcopy(model).to(device)
    optimizer = case.optimizer(model.parameters(), **case.options)
    first_output, first_gradients = None, None
    torch.manual_seed(1)
    for _ in range(3):
        optimizer.zero_grad()
        output = model(*(value.to(device) for value in inputs))
        assert output.device.type == device
        ramp = torch.linspace(-1, 1, output.numel(), device=device).view_as(output)
        (output if output.dim() == 0 else (output - ramp).pow(2).mean()).backward()
        if first_output is None:
            first_output = output.detach().cpu()
            first_gradients = {
                name: parameter.grad.cpu().clone()
                for name, parameter in model.named_parameters()
                if parameter.grad is not None
            }
        optimizer.step()
    state = {name: value.cpu() for name, value in model.state_dict().items()}
    return first_output, first_gradients, state


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_three_steps(case: Case) -> None:
    torch.manual_seed(0)
    model, inputs = case.model().train(), case.inputs()
    expected = train(case, model, inputs, "cpu")
    actual = train(case, model, inputs, "mps")
    assert expected[1], "the case trains nothing"
    for mine, reference in zip(actual, expected, strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-4, atol=1e-5)


def test_generation() -> None:
    torch.manual_seed(0)
    model, prompt = Decoder().eval(), torch.randint(0, 40, (2, 4))
    expected = model.generate(prompt, 12)
    actual = model.to("mps").generate(prompt.to("mps"), 12)
    assert actual.is_mps
    assert actual.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_mixed_precision(dtype: torch.dtype) -> None:
    """The network's matrix products in 16 bits, losses in float32, and the scale as on the CPU."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    x, y = torch.randn(6, 8), torch.randint(0, 4, (6,))
    results = []
    for device in ("cpu", "mps"):
        net = copy.deepcopy(model).to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler(device, init_scale=2.0**20, growth_interval=1)
        for _ in range(12):
            optimizer.zero_grad()
            with torch.autocast(device, dtype=dtype):
                logits = net(x.to(device))
                loss = torch.nn.functional.cross_entropy(logits.float(), y.to(device))
            assert logits.dtype == dtype and loss.dtype == torch.float32
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        results.append((scaler.get_scale(), net[0].weight.detach().cpu()))
    (cpu_scale, cpu_weight), (mps_scale, mps_weight) = results
    assert mps_scale == cpu_scale
    assert not torch.equal(mps_weight, model[0].weight), "every step was skipped"
    torch.testing.assert_close(mps_weight, cpu_weight, rtol=2e-2, atol=1e-3)
