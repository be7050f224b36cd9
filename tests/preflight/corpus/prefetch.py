"""Moves batches as a CUDA tutorial says, with the device chosen rightly."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.accelerator.current_accelerator() or torch.device("cpu")
data = TensorDataset(torch.randn(40, 4), torch.randn(40, 1))
loader = DataLoader(data, batch_size=8, pin_memory=True)  # expect: pin-memory
model = nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x = x.to(device, non_blocking=True)  # expect: non-blocking
    y = y.pin_memory()  # expect: pin-memory
    y = y.to(device)
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
