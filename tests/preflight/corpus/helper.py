"""Belongs to settings_from_helper.py."""

import torch

DEVICE = torch.device("cuda:0")  # expect: hardcoded-cuda
TABLE = torch.arange(12.0).reshape(4, 3)


def features(step):
    places = torch.arange(3).to(DEVICE) + 3 * step
    return torch.take(TABLE.to(DEVICE), places)  # expect: missing-operator
