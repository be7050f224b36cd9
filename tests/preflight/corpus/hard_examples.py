"""Trains on the hard examples only, which it picks with masks."""

import torch
from torch import nn

device = torch.device("mps")
torch.manual_seed(1)
model = nn.Linear(6, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(128, 6, device=device), torch.randn(128, 1, device=device)
for _ in range(10):
    with torch.no_grad():
        error = (model(x) - y).abs().squeeze(1)
    hard = error > error.median()
    rows = hard.nonzero().squeeze(1)  # expect: sync-in-step
    chosen = x[hard]  # expect: sync-in-step
    wanted = y[rows]
    spread = torch.masked_select(error, hard).std()  # expect: sync-in-step
    loss = nn.functional.mse_loss(model(chosen), wanted) / (1 + spread)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
