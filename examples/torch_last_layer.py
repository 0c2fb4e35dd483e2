"""A convolutional network in PyTorch from training to judged predictions.

On MNIST where its files are in the folder given (5,000 images to train, 1,000 to choose the
temperature, 10,000 to test), else on scikit-learn's small digits.

python torch_last_layer.py [folder]
"""

from __future__ import annotations

import gzip
import sys
import time
from pathlib import Path

import numpy as np
import torch
from calibration import scores
from scipy.special import softmax
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ornstein as orn

EPOCHS, BATCH = 20, 50


class Network(nn.Module):
    def __init__(self, side: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * (side // 4) ** 2, 32),
            nn.ReLU(),
        )
        self.fc = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.body(x))


def idx(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    with gzip.open(folder / f"{part}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return images / 255.0, labels.astype(int)


def split(folder: Path | None) -> list[TensorDataset]:
    """Rows to train, to choose the temperature, and to test."""
    if folder is None:
        flat, labels = load_digits(return_X_y=True)
        images, sizes = flat.reshape(-1, 8, 8) / 16.0, (600, 300)
    else:
        training, test = idx(folder, "train"), idx(folder, "t10k")
        some = np.random.default_rng(0).permutation(60_000)[:6000]
        images = np.concatenate([training[0][some], test[0]])
        labels, sizes = np.concatenate([training[1][some], test[1]]), (5000, 1000)
    order = np.arange(len(labels))
    if folder is None:
        order = np.random.default_rng(0).permutation(order)
    tensors = torch.tensor(images[:, None], dtype=torch.float32), torch.tensor(labels)
    parts = np.split(order, np.cumsum(sizes))
    return [TensorDataset(tensors[0][part], tensors[1][part]) for part in parts]


began = time.perf_counter()
torch.manual_seed(0)
train, held_out, test = split(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
net = Network(train[0][0].shape[-1])
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(EPOCHS):
    for images, labels in DataLoader(train, BATCH, shuffle=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
print(f"trained on {len(train):,} images in {time.perf_counter() - began:.0f} s")

loader, loader2 = DataLoader(train, 500), DataLoader(held_out, 500)
post = orn.from_torch(net, loader, layer="fc", held_out=loader2, progress=False)
print(post)
print("verdict:", post.check().level)

images, labels = test.tensors[0], test.tensors[1].numpy()
net.eval()
with torch.no_grad():
    logits = net(images).double().numpy()
scaling = post.calibration["temperature scaling"].temperature
print("on new images")
print("  trained network:    ", scores(softmax(logits, axis=1), labels))
print("  temperature scaling:", scores(softmax(logits / scaling, axis=1), labels))
print("  last layer:         ", scores(post.predict(images).mean, labels))
print(f"all in {time.perf_counter() - began:.0f} s")
