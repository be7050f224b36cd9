"""Reads values from the device in every step, in several ways."""

import torch
from torch import nn

device = torch.device("mps")
model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)).to(device)
optimizer = torch.optim.Adam(model.parameters())
inputs, labels = torch.randn(16, 8, device=device), torch.randint(0, 2, (16,), device=device)
losses, history, best = [], [], 1e9
for _ in range(20):
    logits = model(inputs)
    loss = nn.functional.cross_entropy(logits, labels)
    if torch.isnan(loss):  # expect: sync-in-step
        break
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())  # expect: sync-in-step
    history.append(logits.detach().cpu())  # expect: sync-in-step
    best = min(best, float(loss))  # expect: sync-in-step
    shares = logits.softmax(1).mean(0).tolist()  # expect: sync-in-step
print(losses, best, shares)
