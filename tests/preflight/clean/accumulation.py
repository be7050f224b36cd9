"""Gradient accumulation, activation checkpointing, EMA of the weights; one read an epoch."""

import copy

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("mps")
stem, body, head = nn.Linear(6, 12), nn.Sequential(nn.Linear(12, 12), nn.SiLU()), nn.Linear(12, 1)
model = nn.ModuleList([stem, body, head]).to(device)
ema = copy.deepcopy(model)
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(
    TensorDataset(torch.randn(48, 6), torch.randn(48, 1)), batch_size=4, shuffle=True
)
for epoch in range(2):
    running = torch.zeros((), device=device)
    for index, (x, y) in enumerate(loader):
        hidden = checkpoint(body, stem(x.to(device)), use_reentrant=False)
        loss = nn.functional.mse_loss(head(hidden), y.to(device)) / 4
        loss.backward()
        running += loss.detach()
        if (index + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                for slow, fast in zip(ema.parameters(), model.parameters(), strict=True):
                    slow.lerp_(fast, 0.1)
    print(epoch, running.item())
