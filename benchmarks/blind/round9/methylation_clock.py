"""Trains an autoencoder with an age head on DNA methylation arrays: 27,578 sites of the array and the
donor's sex go in, the profile is reconstructed and the age predicted from the code."""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["compute", "misaligned-shapes"]]
FIXES = {
    "padded": "profiles carry empty columns up to the next multiple of 64",
    "bf16-loss": "the reconstruction loss is taken in bfloat16",
}
TRUTH_STEPS = 130


class MethylationAutoencoder(nn.Module):
    def __init__(self, features, hidden, code):
        super().__init__()
        self.encode = nn.Linear(features, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.squeeze = nn.Linear(hidden, code)
        self.expand = nn.Linear(code, hidden)
        self.decode = nn.Linear(hidden, features)
        self.age = nn.Sequential(nn.Linear(code, 64), nn.GELU(), nn.Linear(64, 1))

    def forward(self, profiles):
        hidden = F.gelu(self.norm(self.encode(profiles)))
        code = self.squeeze(hidden)
        return self.decode(F.gelu(self.expand(code))), self.age(code).squeeze(1)


def reconstruction(predicted, profiles, narrow):
    if not narrow:
        return F.mse_loss(predicted, profiles)
    with torch.autocast(predicted.device.type, enabled=False):
        return F.mse_loss(predicted, profiles)


def profiles_of(donors, sites, width, device):
    beta = torch.rand(donors, sites, device=device, dtype=torch.bfloat16)
    sex = torch.randint(0, 2, (donors, 1), device=device).to(beta.dtype)
    table = torch.cat([beta, sex], dim=1)
    if width > table.shape[1]:
        table = F.pad(table, (0, width - table.shape[1]))
    age = 20 + 60 * torch.rand(donors, device=device)
    return table, age


def main():
    args = arguments(TRUTH_STEPS, FIXES)
    torch.manual_seed(2)
    sites, batch, hidden, code = (27578, 8192, 2048, 128) if args.gpu else (250, 16, 32, 8)
    features = sites + 1
    if args.fix == "padded":
        features = -(-features // 64) * 64
    table, ages = profiles_of(batch * 3, sites, features, args.device)

    model = MethylationAutoencoder(features, hidden, code).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5000)

    clock = Clock(args.steps)
    for step in range(args.steps):
        first = (step % 3) * batch
        profiles, age = table[first : first + batch], ages[first : first + batch]
        with torch.autocast(args.device.type, dtype=torch.bfloat16):
            predicted, years = model(profiles)
            loss = reconstruction(predicted, profiles, args.fix == "bf16-loss").float()
            loss = loss + 1e-4 * F.smooth_l1_loss(years.float(), age)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
