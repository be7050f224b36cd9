"""The training loop against closed forms, and the promise that a step does not wait."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from macgpu import train


def problem(batches: int, seed: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(8, 5, generator=generator, dtype=torch.float64),
            torch.randint(0, 3, (8,), generator=generator),
        )
        for _ in range(batches)
    ]


def softmax(z: np.ndarray) -> np.ndarray:
    exp = np.exp(z - z.max(1, keepdims=True))
    return exp / exp.sum(1, keepdims=True)


def test_fit_takes_the_steps_of_gradient_descent():
    torch.manual_seed(0)
    model = nn.Linear(5, 3, bias=False).double()
    weight = model.weight.detach().numpy().copy()
    data = problem(4)
    history = train.fit(
        model, data, torch.optim.SGD(model.parameters(), lr=0.1), epochs=2, report=None
    )
    # The gradient of softmax cross-entropy is (p - onehot)ᵀ x / n.
    losses = []
    for inputs, labels in data * 2:
        x, onehot = inputs.numpy(), np.eye(3)[labels.numpy()]
        p = softmax(x @ weight.T)
        losses.append(-(onehot * np.log(p)).sum(1).mean())
        weight -= 0.1 * (p - onehot).T @ x / len(x)
    np.testing.assert_allclose(model.weight.detach().numpy(), weight, rtol=1e-12)
    np.testing.assert_allclose(history.step_losses, losses, rtol=1e-12)
    assert history.epochs[1].loss == pytest.approx(np.mean(losses[4:]), rel=1e-12)


def test_a_smaller_last_batch_counts_by_its_size():
    model = nn.Linear(5, 3).double()
    (x, y), (x2, y2) = problem(2)
    data = [(x, y), (x2[:2], y2[:2])]
    frozen = torch.optim.SGD(model.parameters(), lr=0.0)
    epoch = train.fit(model, data, frozen, epochs=1, report=None).epochs[0]
    everything = model(torch.cat([x, x2[:2]]))
    labels = torch.cat([y, y2[:2]])
    assert epoch.samples == 10
    assert epoch.loss == pytest.approx(nn.functional.cross_entropy(everything, labels).item())
    assert epoch.accuracy == pytest.approx((everything.argmax(1) == labels).double().mean().item())


class CountReads(TorchDispatchMode):
    """Counts how often a number is read from a tensor: what makes the CPU wait for a GPU."""

    def __init__(self):
        super().__init__()
        self.reads = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.reads += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def reads(steps: int) -> int:
    model = nn.Linear(5, 3).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with CountReads() as counter:
        train.fit(model, problem(steps), optimizer, epochs=1, report=None)
    return counter.reads


def test_more_steps_do_not_read_more_numbers():
    assert reads(steps=10) == reads(steps=1)


def test_more_steps_do_not_wait_more_often(monkeypatch):
    waits = []
    monkeypatch.setattr(train, "synchronize", waits.append)

    def count(steps):
        waits.clear()
        reads(steps)
        return len(waits)

    assert count(10) == count(1) > 0


def test_tokens_stay_whole_numbers():
    model = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 3))
    batches = [(torch.randint(10, (8, 3)), torch.randint(3, (8,)))]
    history = train.fit(model, batches, torch.optim.SGD(model.parameters()), 1, report=None)
    assert len(history.step_losses) == 1


def test_the_seed_decides_dropout():
    def run(seed):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 64), nn.Dropout(0.5), nn.Linear(64, 3)).double()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return train.fit(model, problem(3), optimizer, 1, seed=seed, report=None).step_losses

    assert run(1) == run(1) != run(2)


def test_the_scheduler_moves_after_every_step():
    model = nn.Linear(5, 3).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    train.fit(model, problem(3), optimizer, epochs=2, scheduler=scheduler, report=None)
    assert optimizer.param_groups[0]["lr"] == 0.5**6


def test_one_line_an_epoch_is_reported():
    lines = []
    model = nn.Linear(5, 3).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train.fit(model, problem(2), optimizer, epochs=3, report=lines.append)
    assert [line.split(":")[0] for line in lines] == ["epoch 1", "epoch 2", "epoch 3"]


def test_prediction_is_in_evaluation_mode_and_puts_the_mode_back():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.9)).double()
    data = problem(2)
    logits, labels = train.predict(model, data)
    assert model.training
    assert torch.equal(logits, model[0](torch.cat([x for x, _ in data])).detach())
    assert torch.equal(labels, torch.cat([y for _, y in data]))
    expected = (logits.argmax(1) == labels).double().mean().item()
    assert train.accuracy(model, data) == pytest.approx(expected)
