"""Tabular data from NumPy: float64 unless one says otherwise."""

import numpy as np
import torch
from torch import nn

device = torch.device("mps")
rng = np.random.default_rng(0)
features, target = rng.normal(size=(64, 6)), rng.normal(size=(64, 1))
x = torch.from_numpy(features).to(device).float()  # expect: float64
y = torch.tensor(target, device=device).float()  # expect: float64
weight = torch.ones(64, 1, dtype=torch.float64, device=device)  # expect: float64
model = nn.Linear(6, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(6):
    residual = (model(x) - y) * weight.float()
    loss = residual.double().pow(2).mean().float()  # expect: float64
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
