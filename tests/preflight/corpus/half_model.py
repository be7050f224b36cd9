"""Half-precision parameters under a GradScaler."""

import torch
from torch import nn

device = torch.device("mps")
model = nn.Linear(8, 2).to(device).to(torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("mps")
inputs = torch.randn(16, 8, device=device, dtype=torch.bfloat16)
labels = torch.randint(0, 2, (16,), device=device)
for _ in range(4):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs).float(), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # expect: half-parameters
    scaler.update()
