"""Picks the device and never uses it."""  # expect-run: gpu-unused

import torch
from torch import nn

device = torch.device("mps" if torch.backends.mps.is_available() else "cpu")
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    loss = model(torch.randn(8, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
