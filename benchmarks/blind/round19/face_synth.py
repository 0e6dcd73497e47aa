"""Style-based face synthesis: a generator with weight modulation against a residual discriminator (non-saturating)."""

import math

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

FIXES = ["scale-maps", "fused-adam"]
STEPS = 24


class ModulatedConv(nn.Module):
    """3x3 convolution whose input channels are scaled by a style and whose outputs are brought back to unit size."""

    def __init__(self, cin, cout, latent, fix):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(cout, cin, 3, 3))
        self.gain = 1 / math.sqrt(cin * 9)
        self.affine = nn.Linear(latent, cin)
        nn.init.ones_(self.affine.bias)
        self.fix = fix

    def forward(self, x, w):
        b, cin, height, width = x.shape
        style = self.affine(w).float()
        if self.fix == "scale-maps":
            weight = self.weight * self.gain
            demodulate = (style.square() @ weight.square().sum((2, 3)).t() + 1e-8).rsqrt()
            x = F.conv2d(x * style.to(x.dtype)[:, :, None, None], weight.to(x.dtype), padding=1)
            return x * demodulate.to(x.dtype)[:, :, None, None]
        weight = self.weight * self.gain * style[:, None, :, None, None]
        demodulate = (weight.square().sum((2, 3, 4)) + 1e-8).rsqrt()
        weight = weight * demodulate[:, :, None, None, None]
        weight = weight.reshape(-1, cin, 3, 3).to(x.dtype)
        x = F.conv2d(x.reshape(1, b * cin, height, width), weight, padding=1, groups=b)
        return x.reshape(b, -1, height, width)


class StyledLayer(nn.Module):
    def __init__(self, cin, cout, latent, fix):
        super().__init__()
        self.conv = ModulatedConv(cin, cout, latent, fix)
        self.bias = nn.Parameter(torch.zeros(cout, 1, 1))

    def forward(self, x, w):
        return F.leaky_relu(self.conv(x, w) + self.bias.to(x.dtype), 0.2) * math.sqrt(2)


class Generator(nn.Module):
    def __init__(self, latent, channels, dtype, fix):
        super().__init__()
        self.dtype = dtype
        self.mapping = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(latent, latent), nn.LeakyReLU(0.2))])
        self.start = nn.Parameter(torch.randn(channels[0], 4, 4))
        self.first = StyledLayer(channels[0], channels[0], latent, fix)
        self.ups = nn.ModuleList(StyledLayer(a, b, latent, fix) for a, b in zip(channels, channels[1:]))
        self.layers = nn.ModuleList(StyledLayer(b, b, latent, fix) for b in channels[1:])
        self.to_rgb = nn.ModuleList(nn.Conv2d(b, 3, 1) for b in channels[1:])

    def forward(self, z):
        w = self.mapping(F.normalize(z) * math.sqrt(z.shape[1]))
        x = self.first(self.start.to(self.dtype).expand(len(z), -1, -1, -1), w)
        image = 0
        for up, layer, to_rgb in zip(self.ups, self.layers, self.to_rgb):
            x = layer(up(F.interpolate(x, scale_factor=2, mode="nearest"), w), w)
            rgb = F.conv2d(x, to_rgb.weight.to(x.dtype)).float() + to_rgb.bias[:, None, None]
            image = rgb if isinstance(image, int) else F.interpolate(image, scale_factor=2, mode="bilinear") + rgb
        return image


class Down(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(cin, cin, 3, 1, 1), nn.Conv2d(cin, cout, 3, 1, 1)
        self.skip = nn.Conv2d(cin, cout, 1, bias=False)

    def forward(self, x):
        y = F.leaky_relu(self.conv2(F.leaky_relu(self.conv1(x), 0.2)), 0.2)
        return (F.avg_pool2d(y, 2) + self.skip(F.avg_pool2d(x, 2))) / math.sqrt(2)


def discriminator(channels):
    blocks = [Down(a, b) for a, b in zip(channels, channels[1:])]
    return nn.Sequential(nn.Conv2d(3, channels[0], 1), nn.LeakyReLU(0.2), *blocks, nn.Flatten(), nn.Linear(16 * channels[-1], 1))


def faces(count, size, generator, device):
    """Smooth colour blobs in place of photographs."""
    low = torch.randn(count, 3, size // 8, size // 8, generator=generator, device=device)
    return torch.tanh(F.interpolate(low, size=(size, size), mode="bicubic"))


def main():
    args = arguments(STEPS, FIXES)
    torch.manual_seed(10)
    size, batch, latent, channels, d_channels = 16, 3, 16, [12, 12, 8], [4, 6, 8]
    if args.gpu:
        size, batch, latent, channels, d_channels = 64, 32, 512, [512, 512, 512, 512, 256], [64, 128, 256, 512, 512]
    device, dtype = args.device, torch.bfloat16 if args.gpu else torch.float32
    generator = torch.Generator(device).manual_seed(10)
    photos = faces(8 * batch, size, generator, device)
    g = Generator(latent, channels, dtype, args.fix).to(device)
    d = discriminator(d_channels).to(device)
    options = dict(lr=1e-4, betas=(0.0, 0.99), fused=True if args.fix == "fused-adam" else None)
    optim_g, optim_d = torch.optim.Adam(g.parameters(), **options), torch.optim.Adam(d.parameters(), **options)

    def judge(images):
        with torch.autocast(device.type, torch.bfloat16, enabled=args.gpu):
            return d(images).float()

    clock = Clock(args.steps)
    for step in range(args.steps):
        z = torch.randn(2, batch, latent, generator=generator, device=device)
        real = photos[step % 8 * batch :][:batch]
        with torch.no_grad():
            fake = g(z[0])
        loss_d = F.softplus(-judge(real)).mean() + F.softplus(judge(fake)).mean()
        optim_d.zero_grad(set_to_none=True)
        loss_d.backward()
        optim_d.step()

        d.requires_grad_(False)
        loss_g = F.softplus(-judge(g(z[1]))).mean()
        optim_g.zero_grad(set_to_none=True)
        loss_g.backward()
        optim_g.step()
        d.requires_grad_(True)
        clock.tick()
    clock.report()
    print(f"losses {loss_d.item():.5f} {loss_g.item():.5f}")


if __name__ == "__main__":
    main()
