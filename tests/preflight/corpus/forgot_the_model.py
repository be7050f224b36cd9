"""Moves the batches and forgets the model."""

import torch
from torch import nn

device = torch.device("mps")
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(3):
    x = torch.randn(8, 4, device=device)
    loss = model(x).pow(2).mean()  # expect: mixed-devices
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
