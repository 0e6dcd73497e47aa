import argparse
import time

import torch
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=400)
ap.add_argument("--fix", action="store_true")
args = ap.parse_args()
torch.manual_seed(0)
T, ENVS, GAMMA, LAM = 512, 8, 0.99, 0.95
lag = torch.arange(T)[None, :] - torch.arange(T)[:, None]
powers = torch.where(lag >= 0, (GAMMA * LAM) ** lag.clamp_min(0).float(), 0.0)


def advantages(rewards, values):
    delta = rewards + GAMMA * values[1:] - values[:-1]
    if args.fix:
        return powers @ delta
    out = torch.zeros_like(delta)
    running = torch.zeros(ENVS)
    for t in reversed(range(T)):
        running = delta[t] + GAMMA * LAM * running
        out[t] = running
    return out


policy = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
critic = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.Adam([*policy.parameters(), *critic.parameters()], lr=1e-3)
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    obs = torch.randn(T + 1, ENVS, 6)
    action = torch.randint(0, 3, (T, ENVS))
    reward = (obs[1:, :, 0] > 0).float() * (action == 1)
    value = critic(obs).squeeze(-1)
    adv = advantages(reward, value.detach())
    logp = policy(obs[:-1]).log_softmax(-1).gather(-1, action[..., None]).squeeze(-1)
    loss = -(logp * adv).mean() + (value[:-1] - (adv + value[:-1].detach())).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
