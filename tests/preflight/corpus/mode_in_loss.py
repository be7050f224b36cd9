"""Operators without an MPS kernel, in the forward and in the backward pass."""

import torch
from torch import nn

device = torch.device("mps" if torch.backends.mps.is_available() else "cpu")
model = nn.Linear(10, 5).to(device)
loss_fn = nn.MultiMarginLoss()
optimizer = torch.optim.Adam(model.parameters())
inputs = torch.randn(40, 10, device=device)
labels = torch.randint(0, 5, (40,), device=device)
votes = torch.zeros(40, device=device)
for _ in range(8):
    optimizer.zero_grad()
    logits = model(inputs)
    loss = loss_fn(logits, labels)  # expect: missing-operator
    loss.backward()  # expect: missing-operator
    optimizer.step()
    with torch.no_grad():
        votes += torch.mode(logits, dim=1).values  # expect: missing-operator
print(votes.mean().item())
