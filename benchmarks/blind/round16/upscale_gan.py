"""x4 perceptual super-resolution: residual-dense generator against a patch discriminator (relativistic loss)."""
import time
from argparse import ArgumentParser

import torch
from torch import nn
from torch.nn import functional as F


class DenseBlock(nn.Module):
    def __init__(self, nf=64, gc=32):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(nf + i * gc, gc if i < 4 else nf, 3, 1, 1) for i in range(5)])

    def forward(self, x):
        feats = [x]
        for conv in self.convs[:-1]:
            feats.append(F.leaky_relu(conv(torch.cat(feats, 1)), 0.2))
        return x + 0.2 * self.convs[-1](torch.cat(feats, 1))


class RRDB(nn.Module):
    def __init__(self, nf, gc):
        super().__init__()
        self.body = nn.Sequential(*[DenseBlock(nf, gc) for _ in range(3)])

    def forward(self, x):
        return x + 0.2 * self.body(x)


class Generator(nn.Module):
    def __init__(self, nb, nf, gc):
        super().__init__()
        self.first = nn.Conv2d(3, nf, 3, 1, 1)
        self.trunk = nn.Sequential(*[RRDB(nf, gc) for _ in range(nb)], nn.Conv2d(nf, nf, 3, 1, 1))
        self.up1, self.up2 = nn.Conv2d(nf, nf, 3, 1, 1), nn.Conv2d(nf, nf, 3, 1, 1)
        self.hr, self.last = nn.Conv2d(nf, nf, 3, 1, 1), nn.Conv2d(nf, 3, 3, 1, 1)

    def forward(self, x):
        x = self.first(x)
        x = x + self.trunk(x)
        for up in (self.up1, self.up2):
            x = F.leaky_relu(up(F.interpolate(x, scale_factor=2, mode="nearest")), 0.2)
        return self.last(F.leaky_relu(self.hr(x), 0.2))


def patch_discriminator(ndf, n_layers=3):
    layers, ch = [nn.Conv2d(3, ndf, 4, 2, 1), nn.LeakyReLU(0.2)], ndf
    for i in range(1, n_layers + 1):
        nxt = min(ndf * 2 ** i, 512)
        layers += [nn.Conv2d(ch, nxt, 4, 2 if i < n_layers else 1, 1, bias=False), nn.BatchNorm2d(nxt), nn.LeakyReLU(0.2)]
        ch = nxt
    return nn.Sequential(*layers, nn.Conv2d(ch, 1, 4, 1, 1))


class SRGANTrainer:
    def __init__(self, args, device):
        nb, nf, gc, ndf = (1, 16, 8, 8) if args.tiny else (8, 64, 32, 64)
        self.fix = set(args.fix.split(","))
        self.device = device
        self.netG = Generator(nb, nf, gc).to(device, memory_format=torch.channels_last)
        self.netD = patch_discriminator(ndf).to(device, memory_format=torch.channels_last)
        kw = dict(lr=1e-4, betas=(0.9, 0.99), fused=device == "cuda")
        self.optG, self.optD = torch.optim.Adam(self.netG.parameters(), **kw), torch.optim.Adam(self.netD.parameters(), **kw)
        self.amp = dict(device_type=device, dtype=torch.bfloat16, enabled=device == "cuda")
        self.log = {}

    def feed(self, hr):
        self.hr = hr.contiguous(memory_format=torch.channels_last)
        self.lr = F.interpolate(self.hr, scale_factor=0.25, mode="bicubic", antialias=True)

    @staticmethod
    def bce(a, b, target):
        x = (a - b.mean()).float()
        return F.binary_cross_entropy_with_logits(x, torch.full_like(x, target))

    def optimize_parameters(self):
        with torch.autocast(**self.amp):
            fake = self.netG(self.lr)

        # discriminator
        self.optD.zero_grad()
        with torch.autocast(**self.amp):
            pred_real = self.netD(self.hr)
            pred_fake = self.netD(fake.detach() if "detach" in self.fix else fake)
            loss_d = 0.5 * (self.bce(pred_real, pred_fake, 1.0) + self.bce(pred_fake, pred_real, 0.0))
        loss_d.backward(retain_graph=True)
        self.optD.step()

        # generator
        if "freeze_d" in self.fix:
            self.netD.requires_grad_(False)
        self.optG.zero_grad()
        with torch.autocast(**self.amp):
            pred_fake = self.netD(fake)
            with torch.no_grad():
                pred_real = self.netD(self.hr)
            adv = 0.5 * (self.bce(pred_real, pred_fake, 0.0) + self.bce(pred_fake, pred_real, 1.0))
            loss_g = F.l1_loss(fake.float(), self.hr) + 5e-3 * adv
        loss_g.backward()
        self.optG.step()
        if "freeze_d" in self.fix:
            self.netD.requires_grad_(True)
        self.log = {"d": loss_d.detach(), "g": loss_g.detach()}


def crops(batch, size, device):
    """Random textures: a few octaves of upsampled noise."""
    while True:
        x = sum(F.interpolate(torch.rand(batch, 3, size // s, size // s, device=device), size=(size, size), mode="bilinear") / n
                for n, s in enumerate((32, 16, 8, 4), 1))
        yield x / 2.1


def main():
    p = ArgumentParser()
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--fix", default="")
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--cpu", action="store_true")
    args = p.parse_args()
    device = "cpu" if args.cpu else "cuda"
    torch.manual_seed(0)
    batch, size = (2, 64) if args.tiny else (32, 256)
    trainer, data = SRGANTrainer(args, device), crops(batch, size, device)
    for it in range(args.steps):
        if it == args.steps // 2:
            if device == "cuda":
                torch.cuda.synchronize()
            mark = time.perf_counter()
        trainer.feed(next(data))
        trainer.optimize_parameters()
    if device == "cuda":
        torch.cuda.synchronize()
    print("MEAN_STEP_MS %.3f" % ((time.perf_counter() - mark) * 1e3 / (args.steps - args.steps // 2)))
    print(" ".join("%s %.5f" % (k, v.item()) for k, v in trainer.log.items()))


if __name__ == "__main__":
    main()
