"""Feed-forward stylisation: a small image network trained against feature and Gram losses of a fixed recognition net."""
import time
from argparse import ArgumentParser

import torch
import torch.nn.functional as F
from torch import nn


def conv(cin, cout, k=3, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, k, stride, k // 2, padding_mode="reflect"), nn.InstanceNorm2d(cout, affine=True), nn.ReLU())


class Residual(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.a, self.b = conv(ch, ch), nn.Conv2d(ch, ch, 3, 1, 1)

    def forward(self, x):
        return x + self.b(self.a(x))


class Stylist(nn.Module):
    def __init__(self, ch, blocks):
        super().__init__()
        self.down = nn.Sequential(conv(3, ch, 5, 2), conv(ch, 2 * ch, 3, 2))
        self.mid = nn.Sequential(*[Residual(2 * ch) for _ in range(blocks)])
        self.up = conv(2 * ch, ch)
        self.rgb = nn.Conv2d(ch, 12, 3, 1, 1)

    def forward(self, x):
        h = self.mid(self.down(x))
        h = self.up(F.interpolate(h, scale_factor=2.0))
        return torch.sigmoid(F.pixel_shuffle(self.rgb(h), 2))


class Recogniser(nn.Module):
    """VGG-shaped trunk; returns the activations after each stage."""

    def __init__(self, ch):
        super().__init__()
        plan, cin = ((ch, 2), (2 * ch, 2), (4 * ch, 2)), 3
        self.stages = nn.ModuleList()
        for cout, depth in plan:
            layers = [nn.AvgPool2d(2)] if cin != 3 else []
            for _ in range(depth):
                layers += [nn.Conv2d(cin, cout, 3, 1, 1), nn.ReLU()]
                cin = cout
            self.stages.append(nn.Sequential(*layers))
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight)
                nn.init.zeros_(m.bias)

    def forward(self, x):
        out = []
        for stage in self.stages:
            x = stage(x)
            out.append(x)
        return out


def gram(f):
    b, c, h, w = f.shape
    f = f.flatten(2)
    return f @ f.transpose(1, 2) / (c * h * w)


class StyleLoss(nn.Module):
    def __init__(self, critic, painting, weight, fix):
        super().__init__()
        self.critic, self.weight, self.fix = critic.eval(), weight, fix
        if fix == "freeze":
            self.critic.requires_grad_(False)
        with torch.no_grad():
            self.style = [gram(f) for f in self.critic(painting)]

    def forward(self, image, photo):
        got = self.critic(image)
        with torch.set_grad_enabled(self.fix != "no_grad_photo"):
            wanted = self.critic(photo)
        content = F.mse_loss(got[1], wanted[1]) + F.mse_loss(got[2], wanted[2])
        style = sum(F.mse_loss(gram(g), s.expand(len(g), -1, -1)) for g, s in zip(got, self.style))
        return content + self.weight * style


def photos(n, size, device):
    """Soft blobs of colour."""
    yy, xx = torch.meshgrid(*[torch.linspace(-1, 1, size)] * 2, indexing="ij")
    c = torch.rand(n, 5, 2) * 2 - 1
    r = 0.1 + 0.4 * torch.rand(n, 5)
    blobs = torch.exp(-((xx - c[..., 0, None, None]) ** 2 + (yy - c[..., 1, None, None]) ** 2) / r[..., None, None] ** 2)
    return torch.einsum("nkhw,nkc->nchw", blobs, torch.rand(n, 5, 3)).clamp(0, 1).to(device)


class Session:
    def __init__(self, fix, device):
        torch.manual_seed(4)
        self.device = device
        big = device == "cuda"
        self.batch, size, ch = (32, 256, 64) if big else (4, 64, 24)
        self.pool = photos(128, size, device)
        self.net = Stylist(32 if big else 12, 5 if big else 2).to(device)
        painting = F.interpolate(torch.rand(1, 3, 16, 16, device=device), size=(size, size), mode="bicubic")
        self.criterion = StyleLoss(Recogniser(ch).to(device), painting, 50.0, fix)
        self.criterion.to(device)
        self.optim = torch.optim.Adam(self.net.parameters(), lr=1e-3, fused=True)

    def sync(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def step(self):
        photo = self.pool[torch.randint(len(self.pool), (self.batch,), device=self.device)]
        self.optim.zero_grad()
        loss = self.criterion(self.net(photo), photo)
        loss.backward()
        self.optim.step()
        return loss.detach()

    def fit(self, steps):
        first = steps // 3
        for _ in range(first):
            self.step()
        self.sync()
        t = time.perf_counter()
        for _ in range(steps - first):
            loss = self.step()
        self.sync()
        return loss, (time.perf_counter() - t) / (steps - first)


if __name__ == "__main__":
    p = ArgumentParser()
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--fix", choices=["", "freeze", "no_grad_photo"], default="")
    p.add_argument("--device", default="cpu")
    o = p.parse_args()
    loss, sec = Session(o.fix, o.device).fit(o.steps)
    print("loss", round(loss.item(), 5))
    print("mean step ms %.3f" % (sec * 1000))
