"""A small CNN, spawned workers, evaluation after each epoch, any device."""

import torch
import torch.nn.functional as F
from pictures import Pictures, collate
from torch import nn
from torch.utils.data import DataLoader


def pick_device():
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(64, 3)

    def forward(self, x):
        return self.head(self.dropout(self.features(x).flatten(1)))


def main():
    torch.manual_seed(0)
    device = pick_device()
    train = DataLoader(Pictures(21), batch_size=8, shuffle=True, num_workers=2, collate_fn=collate)
    test = DataLoader(Pictures(24), batch_size=4)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for _ in range(4):
        model.train()
        total = torch.zeros((), device=device)
        for images, labels in train:
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        scheduler.step()
        model.eval()
        hits = 0
        with torch.no_grad():
            for images, labels in test:
                hits += (model(images.to(device)).argmax(1) == labels.to(device)).sum().item()
        print(f"loss {total.item():.3f}, accuracy {hits / 24:.2f}")


if __name__ == "__main__":
    main()
