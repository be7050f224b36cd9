"""Sentences of every length, padded to the longest of each batch."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

device = torch.device("mps")
embed, head = nn.Embedding(30, 8).to(device), nn.Linear(8, 2).to(device)
optimizer = torch.optim.Adam([*embed.parameters(), *head.parameters()])
sentences = [torch.randint(0, 30, (length,)) for length in range(5, 45)]
labels = torch.randint(0, 2, (40,))
for first in range(0, 40, 4):
    batch = pad_sequence(sentences[first : first + 4], batch_first=True)
    tokens = batch.to(device)  # expect: changing-shapes
    loss = nn.functional.cross_entropy(
        head(embed(tokens).mean(1)), labels[first : first + 4].to(device)
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
