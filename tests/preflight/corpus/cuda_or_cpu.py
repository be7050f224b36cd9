"""The commonest line there is."""

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")  # expect: cuda-or-cpu
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs, labels = torch.randn(32, 4).to(device), torch.randint(0, 2, (32,)).to(device)
for _ in range(6):
    with torch.autocast("cuda", dtype=torch.float16):  # expect: cuda-autocast
        loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    winner = torch.mode(inputs).values  # expect: missing-operator
