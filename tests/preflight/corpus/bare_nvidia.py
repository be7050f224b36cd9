"""A script that knows nothing but an NVIDIA card, from top to bottom."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.backends.cudnn.benchmark = True


def main():
    torch.manual_seed(0)
    torch.cuda.set_device(0)  # expect: hardcoded-cuda
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 3))
    model.cuda()  # expect: hardcoded-cuda
    data = TensorDataset(torch.randn(48, 12), torch.randint(0, 3, (48,)))
    loader = DataLoader(data, batch_size=8, shuffle=True, pin_memory=True)  # expect: pin-memory
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.cuda.amp.GradScaler()  # expect: cuda-amp
    for _ in range(2):
        for inputs, labels in loader:
            inputs = inputs.cuda(non_blocking=True)  # expect: hardcoded-cuda, non-blocking
            labels = labels.to("cuda")  # expect: hardcoded-cuda
            optimizer.zero_grad()
            with torch.cuda.amp.autocast():  # expect: cuda-amp
                loss = F.cross_entropy(model(inputs), labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        torch.cuda.synchronize()  # expect: hardcoded-cuda


if __name__ == "__main__":
    main()
