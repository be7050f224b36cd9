"""autocast and GradScaler for whatever the device is, with unscaled clipping."""

import torch
from torch import nn

device = torch.accelerator.current_accelerator() or torch.device("cpu")
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
scaler = torch.amp.GradScaler(device.type, enabled=device.type != "cpu")
inputs, labels = torch.randn(32, 8, device=device), torch.randint(0, 3, (32,), device=device)
for _ in range(6):
    optimizer.zero_grad()
    with torch.autocast(device.type, dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(inputs), labels)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
if device.type == "cuda":
    torch.cuda.synchronize()
print(loss.item())
