"""The book's own training loop on the shipped pictures."""

import torch
from torch import nn

from macgpu.data import Batches, fashion_subset
from macgpu.device import pick, seed_everything
from macgpu.train import accuracy, fit

seed_everything(0)
device = pick("auto")
train, held_out = (part.first(64).to(device) for part in fashion_subset())
model = nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.ReLU(), nn.Linear(16, 10)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
fit(model, Batches(train, 16, shuffle_seed=0), optimizer, epochs=1)
print(accuracy(model, Batches(held_out, 32)))
