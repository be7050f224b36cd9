"""A tiny transformer whose position codes stay behind on the CPU."""

import torch
from torch import nn

device = torch.device("mps")


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 4)
        self.positions = torch.randn(9, 16)  # not a buffer

    def forward(self, tokens):
        x = self.embed(tokens) + self.positions  # expect: mixed-devices
        return self.head(self.layer(x))


model = Tagger().to(device)
optimizer = torch.optim.AdamW(model.parameters())
tokens = torch.randint(0, 20, (4, 9), device=device)
tags = torch.randint(0, 4, (4, 9))
for _ in range(4):
    logits = model(tokens)
    logits, tags = logits.flatten(0, 1), tags.flatten()
    loss = nn.functional.cross_entropy(logits, tags)  # expect: mixed-devices
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
