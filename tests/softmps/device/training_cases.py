"""Models to train for three steps on the CPU and on the device.

A case's model gets the case's inputs; training brings its output towards a ramp, or lowers it where
it is a loss already. Models are small, and as odd as what people train.

Adam divides a gradient by its size, so it turns the rounding error of a gradient that is zero, as
that of a key's bias in attention, into a step. Those models train with SGD.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
import torchvision.models as tv
from torch import nn
from torch.utils.checkpoint import checkpoint

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Case:
    name: str
    model: Callable[[], nn.Module]
    inputs: Callable[[], Tensors]
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW
    options: dict = field(default_factory=lambda: {"lr": 1e-3})


class Call(nn.Module):
    """A function of a weight and the inputs, as a model."""

    def __init__(self, function: Callable[..., torch.Tensor], *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(*shape) * 0.3)
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(self.weight, *inputs)


class Last(nn.Module):
    """The first result of a recurrent layer, through a head."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(width, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x)[0])


class Packed(nn.Module):
    """A bidirectional LSTM over sequences of different lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 8, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        lengths = torch.tensor([5, 3, 2])
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        return nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]


class CellLoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(6, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = x.new_zeros(len(x), 8)
        for step in x.unbind(1):
            state = self.cell(step, state)
        return state


class TextEncoder(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16, padding_idx=0)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.layers(self.embedding(tokens), src_key_padding_mask=tokens == 0)


class Decoder(nn.Module):
    """A small causal language model; `generate` continues a prompt greedily."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(40, 16), nn.Embedding(32, 16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.norm, self.mlp = nn.RMSNorm(16), nn.Sequential(nn.Linear(16, 32), nn.GELU())
        self.down, self.head = nn.Linear(32, 16), nn.Linear(16, 40, bias=False)
        self.head.weight = self.token.weight

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        x = self.token(tokens) + self.position(torch.arange(length, device=tokens.device))
        q, k, v = (
            part.unflatten(-1, (4, 4)).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return self.head(x + self.down(self.mlp(x)))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.logits(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    @torch.no_grad()
    def generate(self, tokens: torch.Tensor, count: int) -> torch.Tensor:
        for _ in range(count):
            following = self.logits(tokens)[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, following], 1)
        return tokens


class EncoderDecoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.transformer = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        return self.transformer(source, target, tgt_mask=mask, tgt_is_causal=True)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = self.block(3, 8), self.block(8, 16)
        self.up, self.merge = nn.ConvTranspose2d(16, 8, 2, 2), self.block(16, 8)
        self.out = nn.Conv2d(8, 1, 1)

    @staticmethod
    def block(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        return self.out(self.merge(torch.cat([first, self.up(second)], 1)))


class GAN(nn.Module):
    """Generator and discriminator of a DCGAN, with the losses of both."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(8, 16, 4, 1, 0, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
            nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
            nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False), nn.Tanh(),
        )  # fmt: skip
        self.discriminator = nn.Sequential(
            nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(0.2, True),
            nn.Conv2d(8, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.LeakyReLU(0.2, True),
            nn.Conv2d(16, 1, 4), nn.Flatten(0),
        )  # fmt: skip

    def forward(self, noise: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        made = self.generator(noise)
        true, false = self.discriminator(real), self.discriminator(made)
        ones, zeros = torch.ones_like(true), torch.zeros_like(false)
        loss = F.binary_cross_entropy_with_logits
        return loss(true, ones) + loss(false, zeros) + 0.5 * loss(false, ones)


class VAE(nn.Module):
    """Draws its noise on the device: equal only if the generator is seeded as the CPU's."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(12, 8), nn.Linear(4, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, log_var = self.encode(x).chunk(2, -1)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        divergence = -0.5 * (1 + log_var - mean**2 - log_var.exp()).sum(-1).mean()
        return F.mse_loss(self.decode(z), x) + 0.1 * divergence


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 4)
        self.reentrant = reentrant

    def block(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.first(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.requires_grad_()
        return self.second(checkpoint(self.block, x, use_reentrant=self.reentrant))


class InPlace(nn.Module):
    """Views, and updates through them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 12)
        self.register_buffer("seen", torch.zeros(12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        with torch.no_grad():
            self.seen.view(3, 4)[1:].add_(y.mean(0).view(3, 4)[1:])
        z = y.clone()
        z.view(-1, 3, 4)[:, 0].mul_(2).add_(1)
        z.t()[2:5] = x.t()[:3]
        z[:, ::5].clamp_(min=0)
        return z + self.seen


def _losses(weight: torch.Tensor, x: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    y = x @ weight
    log_p, p, target = F.log_softmax(y, -1), torch.sigmoid(y), torch.sigmoid(x[:, :5])
    sign = torch.where(classes > 2, 1.0, -1.0)
    class_weight = torch.linspace(0.5, 1.5, 5, device=y.device)
    return sum([
        F.cross_entropy(y, classes, weight=class_weight, label_smoothing=0.1),
        F.nll_loss(log_p, classes), F.kl_div(log_p, target.softmax(-1), reduction="batchmean"),
        F.mse_loss(y, target), F.l1_loss(y, target), F.smooth_l1_loss(y, target),
        F.huber_loss(y, target), F.binary_cross_entropy(p, target),
        F.binary_cross_entropy_with_logits(y, target), F.poisson_nll_loss(y, target),
        F.gaussian_nll_loss(y, target, p + 0.1), F.soft_margin_loss(y, sign[:, None].expand(-1, 5)),
        F.hinge_embedding_loss(y, sign[:, None].expand(-1, 5)),
        F.cosine_embedding_loss(y, target, sign), F.triplet_margin_loss(y, target, p),
        F.margin_ranking_loss(y[:, 0], y[:, 1], sign),
        F.multilabel_soft_margin_loss(y, target),
    ])  # fmt: skip


def _indexing(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    index = torch.tensor([2, 0, 1, 2], device=x.device)
    y = x @ weight
    picked = y[index, index + 1] + y[index][:, 1] + y.index_select(0, index)[:, 0]
    gathered = y.gather(1, index.expand(4, 4))
    scattered = torch.zeros_like(y).scatter_add(0, index[:, None].expand(4, 6), y[:4])
    filled = y.masked_fill(y > 0, 0.5)[y < 0.2].sum()
    put = torch.zeros_like(y).index_put((index, index), gathered[0], accumulate=True)
    added = torch.zeros_like(y).index_add(0, index, y[:4])
    rest = torch.where(y > 0, y, -y).tril().flip(1).roll(1, 0)
    return picked.sum() + gathered.sum() + (scattered * added).sum() + filled + (put * rest).sum()


def _reductions(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = (x @ weight).view(2, 4, -1)
    return sum(
        part.sum()
        for part in (
            y.mean(1), y.std(0), y.var(-1), y.prod(-1), y.amax(1), y.min(0).values, y.norm(dim=2),
            y.logsumexp(1), y.cumsum(1), y.median(-1).values, y.softmax(-1) ** 2, y.abs().sum(0),
            (y**2 + 1).cumprod(-1), y.max().expand(2), y.quantile(0.3, dim=1),
        )
    )  # fmt: skip


def _sorting(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = x @ weight
    ranks = torch.arange(1.0, y.shape[1] + 1, device=y.device)
    ordered, where = y.sort(dim=1, descending=True)
    best = y.topk(3, dim=0).values
    again = y.gather(1, y.argsort(dim=1, stable=True))
    return (ordered * ranks).sum() + best.sum() + (again * ranks).sum() + where.float().mean()


def _fourier(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    spectrum = torch.fft.rfft(x @ weight)
    back = torch.fft.irfft(spectrum * spectrum.conj(), n=6)
    window = torch.hann_window(4, device=x.device)
    short = torch.stft(x @ weight, 4, 2, window=window, return_complex=True)
    return back.sum() + spectrum.abs().sum() + torch.fft.fft2(x).real.mean() + short.abs().mean()


def _linear_algebra(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    square = weight @ weight.t() + 3 * torch.eye(6, device=x.device)
    solved = torch.linalg.solve(square, x.t())
    lower = torch.linalg.cholesky(square)
    triangular = torch.linalg.solve_triangular(lower, x.t(), upper=False)
    return (
        solved.sum() + triangular.sum() + torch.linalg.det(square).log()
        + torch.linalg.inv(square).trace() + torch.linalg.slogdet(square).logabsdet
        + torch.linalg.svdvals(square).sum() + torch.einsum("ij,kj->ik", x, weight).sum()
        + torch.linalg.matrix_norm(square) + torch.linalg.qr(square).R.abs().sum()
    )  # fmt: skip


def _images(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), weight)
    larger = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
    nearest = F.interpolate(y, size=(5, 5), mode="nearest")
    theta = torch.tensor([[[0.9, 0.1, 0.0], [-0.1, 0.9, 0.1]]], device=x.device)
    grid = F.affine_grid(theta.expand(len(x), 2, 3), list(larger.shape), align_corners=False)
    warped = F.grid_sample(larger, grid, align_corners=False)
    shuffled = F.pixel_shuffle(y, 2)
    patches = F.unfold(y, 3).mean() + F.fold(F.unfold(y, 2, stride=2), (8, 8), 2, stride=2).mean()
    pooled = F.avg_pool2d(y, 2).mean() + F.lp_pool2d(y.abs() + 1, 2, 2).mean()
    return warped.pow(2).mean() + nearest.mean() + shuffled.std() + patches + pooled


def _half(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return (x.bfloat16() @ weight.bfloat16()).relu().float()


def randn(*shapes: tuple[int, ...]) -> Callable[[], Tensors]:
    return lambda: tuple(torch.randn(shape) for shape in shapes)


def tokens(*shape: int, below: int = 40) -> Callable[[], Tensors]:
    return lambda: (torch.randint(1, below, shape),)


def bags() -> Tensors:
    return torch.randint(0, 20, (9,)), torch.tensor([0, 2, 6])


def padded_tokens() -> Tensors:
    batch = torch.randint(1, 50, (3, 7))
    batch[0, 4:] = 0
    return (batch,)


def small_head(model: nn.Module, features: int) -> nn.Module:
    """Without the head of a hundred million weights, which is three linear layers."""
    model.classifier = nn.Linear(features, 5)
    return model


def small_vit() -> nn.Module:
    return tv.VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=5)


def small_mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 16), nn.PReLU(), nn.LayerNorm(16), nn.Linear(16, 4), nn.Softplus()
    )


IMAGES = randn((2, 3, 64, 64))
SGD = (torch.optim.SGD, {"lr": 1e-3, "momentum": 0.9, "nesterov": True})

CASES = [
    # torchvision: one classifier of each family
    Case("alexnet", lambda: small_head(tv.alexnet(), 256 * 6 * 6), IMAGES, *SGD),
    Case("vgg11", lambda: small_head(tv.vgg11(init_weights=False), 512 * 7 * 7), IMAGES, *SGD),
    Case("resnet18", lambda: tv.resnet18(num_classes=5), IMAGES),
    Case("resnext50", lambda: tv.resnext50_32x4d(num_classes=5), IMAGES, *SGD),
    Case("densenet121", lambda: tv.densenet121(num_classes=5), IMAGES, *SGD),
    Case("googlenet", lambda: tv.googlenet(num_classes=5, aux_logits=False, init_weights=False),
         IMAGES, *SGD),
    Case("inception_v3",
         lambda: tv.inception_v3(num_classes=5, aux_logits=False, init_weights=False),
         randn((2, 3, 96, 96)), *SGD),
    Case("squeezenet", lambda: tv.squeezenet1_1(num_classes=5, dropout=0.0), IMAGES, *SGD),
    Case("mobilenet_v2", lambda: tv.mobilenet_v2(num_classes=5, dropout=0.0), IMAGES, *SGD),
    Case("mobilenet_v3", lambda: tv.mobilenet_v3_small(num_classes=5, dropout=0.0), IMAGES, *SGD),
    Case("efficientnet", lambda: tv.efficientnet_b0(num_classes=5), IMAGES, *SGD),
    Case("mnasnet", lambda: tv.mnasnet0_5(num_classes=5, dropout=0.0), IMAGES, *SGD),
    Case("shufflenet", lambda: tv.shufflenet_v2_x0_5(num_classes=5), IMAGES, *SGD),
    Case("regnet", lambda: tv.regnet_y_400mf(num_classes=5), IMAGES, *SGD),
    Case("convnext", lambda: tv.convnext_tiny(num_classes=5, stochastic_depth_prob=0.0),
         IMAGES, *SGD),
    Case("vit", small_vit, randn((2, 3, 32, 32)), *SGD),
    Case("swin", lambda: tv.swin_t(num_classes=5), IMAGES, *SGD),
    # sequences
    Case("rnn", lambda: Last(nn.RNN(6, 8, 2, batch_first=True), 8), randn((3, 5, 6))),
    Case("lstm", lambda: Last(nn.LSTM(6, 8, 2, batch_first=True), 8), randn((3, 5, 6))),
    Case("lstm projected", lambda: Last(nn.LSTM(6, 8, proj_size=4), 4), randn((5, 3, 6))),
    Case("lstm packed", Packed, randn((3, 5, 6))),
    Case("gru", lambda: Last(nn.GRU(6, 8, bidirectional=True), 16), randn((5, 3, 6))),
    Case("gru cell", CellLoop, randn((3, 5, 6))),
    Case("encoder", TextEncoder, padded_tokens, *SGD),
    Case("encoder with dropout", lambda: TextEncoder(0.2), padded_tokens, *SGD),
    Case("decoder", Decoder, tokens(3, 9), *SGD),
    Case("encoder-decoder", EncoderDecoder, randn((2, 6, 16), (2, 4, 16)), *SGD),
    Case("embedding bag", lambda: nn.EmbeddingBag(20, 8, mode="mean"), bags,
         torch.optim.Adagrad),
    # images, volumes, signals
    Case("mlp", small_mlp, randn((5, 6)), torch.optim.RMSprop),
    Case("unet", UNet, randn((2, 3, 16, 16))),
    Case("dcgan", GAN, randn((3, 8, 1, 1), (3, 1, 16, 16)), torch.optim.Adam,
         {"lr": 2e-4, "betas": (0.5, 0.999)}),
    Case("vae", VAE, randn((5, 12))),
    Case("conv 1-D", lambda: nn.Sequential(nn.Conv1d(3, 8, 5, 2, 2), nn.BatchNorm1d(8), nn.ELU(),
         nn.ConvTranspose1d(8, 2, 4, 2), nn.AdaptiveAvgPool1d(3)), randn((2, 3, 20))),
    Case("conv 3-D", lambda: nn.Sequential(nn.Conv3d(2, 4, 3, padding=1, groups=2),
         nn.BatchNorm3d(4), nn.ReLU(), nn.MaxPool3d(2), nn.ConvTranspose3d(4, 1, 2, 2)),
         randn((2, 2, 6, 6, 6))),
    Case("conv dilated, channels last", lambda: nn.Sequential(
         nn.Conv2d(4, 8, 3, dilation=2, padding=2), nn.InstanceNorm2d(8, affine=True), nn.Mish(),
         nn.Conv2d(8, 4, 3, stride=2)).to(memory_format=torch.channels_last),
         lambda: (torch.randn(2, 4, 9, 9).to(memory_format=torch.channels_last),)),
    Case("weight norm", lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)),
         randn((5, 6))),
    Case("spectral norm", lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(6, 4)),
         randn((5, 6))),
    # operators
    Case("losses", lambda: Call(_losses, 6, 5),
         lambda: (torch.randn(8, 6), torch.randint(0, 5, (8,)))),
    Case("indexing", lambda: Call(_indexing, 6, 6), randn((5, 6))),
    Case("reductions", lambda: Call(_reductions, 6, 12), randn((8, 6))),
    Case("sorting", lambda: Call(_sorting, 6, 12), randn((8, 6))),
    Case("fourier", lambda: Call(_fourier, 6, 6), randn((4, 6))),
    Case("linear algebra", lambda: Call(_linear_algebra, 6, 6), randn((4, 6))),
    Case("image operators", lambda: Call(_images, 4, 3, 3, 3), randn((2, 3, 8, 8))),
    Case("bfloat16", lambda: Call(_half, 6, 4), randn((5, 6))),
    # autograd's special paths, and the optimizers that have kernels of their own
    Case("checkpointed", lambda: Checkpointed(False), randn((5, 6))),
    Case("checkpointed, reentrant", lambda: Checkpointed(True), randn((5, 6))),
    Case("views and in-place", InPlace, randn((5, 6))),
    Case("fused AdamW", small_mlp, randn((5, 6)), torch.optim.AdamW, {"lr": 1e-3, "fused": True}),
    Case("fused Adam, amsgrad", small_mlp, randn((5, 6)), torch.optim.Adam,
         {"lr": 1e-3, "fused": True, "amsgrad": True}),
    Case("fused SGD", UNet, randn((2, 3, 16, 16)), torch.optim.SGD,
         {"lr": 1e-2, "momentum": 0.9, "fused": True}),
    Case("foreach NAdam", small_mlp, randn((5, 6)), torch.optim.NAdam,
         {"lr": 1e-3, "foreach": True}),
]  # fmt: skip
