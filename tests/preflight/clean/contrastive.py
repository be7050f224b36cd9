"""Two views, one temperature, a compiled model, masks with where instead of boolean indexing."""

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("mps")
model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 8)).to(device)
temperature = nn.Parameter(torch.tensor(0.1, device=device))
optimizer = torch.optim.SGD(
    [*model.parameters(), temperature], lr=0.05, nesterov=True, momentum=0.9
)
compiled = torch.compile(model)
data = torch.randn(40, 10)
diagonal = torch.eye(16, dtype=torch.bool, device=device)
for step in range(6):
    rows = torch.randperm(40)[:8]
    one = data[rows].to(device)
    two = one + 0.1 * torch.randn_like(one)
    z = F.normalize(torch.cat([compiled(one), compiled(two)]), dim=1)
    scores = torch.where(diagonal, -1e9, z @ z.T / temperature)
    wanted = torch.arange(16, device=device).roll(8)
    loss = F.cross_entropy(scores, F.one_hot(wanted, 16).float())
    for group in optimizer.param_groups:
        group["lr"] = 0.05 * 0.9**step
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(round(loss.item(), 3))
