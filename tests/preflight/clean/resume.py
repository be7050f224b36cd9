"""Saves a checkpoint each epoch, and goes on from one."""

import tempfile
from pathlib import Path

import torch
from torch import nn

device = torch.device("mps")


def train(model, optimizer, epochs, path):
    x, y = torch.randn(32, 4, device=device), torch.randn(32, 1, device=device)
    for epoch in range(epochs):
        for part in range(0, 32, 8):
            loss = nn.functional.mse_loss(model(x[part : part + 8]), y[part : part + 8])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        print(epoch, loss.item())


def build():
    model = nn.Linear(4, 1).to(device)
    return model, torch.optim.Adam(model.parameters())


with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "last.pt"
    train(*build(), 1, path)
    model, optimizer = build()
    state = torch.load(path, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    train(model, optimizer, 1, path)
