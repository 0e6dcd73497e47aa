"""Soft actor-critic on a batch of simulated reaching arms (vectorised toy dynamics), replay kept in memory."""
import argparse
import copy
import time

import torch
import torch.nn.functional as F
from torch import nn

OBS, ACT = 48, 8


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes[:-2], sizes[1:-1]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


class Arms:
    """obs' = tanh(A obs + B act) with a goal written into the first entries."""

    def __init__(self, n, device, gen):
        self.A = (torch.randn(OBS, OBS, generator=gen) * 0.14).to(device)
        self.B = (torch.randn(ACT, OBS, generator=gen) * 0.5).to(device)
        self.state = torch.randn(n, OBS, device=device)
        self.goal = torch.randn(OBS, generator=gen).to(device)

    def step(self, act):
        self.state = torch.tanh(self.state @ self.A + act @ self.B) + 0.02 * torch.randn_like(self.state)
        return self.state, -(self.state - self.goal).square().mean(1, keepdim=True)


class Memory:
    FIELDS = (("obs", OBS), ("act", ACT), ("rew", 1), ("next_obs", OBS))

    def __init__(self, capacity, device):
        self.capacity = capacity
        self.data = {name: torch.empty(0, dim, device=device) for name, dim in self.FIELDS}

    def __len__(self):
        return len(self.data["rew"])

    def add(self, **transition):
        for name, rows in transition.items():
            self.data[name] = torch.cat([self.data[name], rows])[-self.capacity:]

    def draw(self, n):
        pick = torch.randint(len(self), (n,), device=self.data["rew"].device)
        return [self.data[name][pick] for name, _ in self.FIELDS]


class RingMemory(Memory):
    def __init__(self, capacity, device):
        self.capacity, self.head, self.count = capacity, 0, 0
        self.data = {name: torch.zeros(capacity, dim, device=device) for name, dim in self.FIELDS}

    def __len__(self):
        return self.count

    def add(self, **transition):
        n = len(transition["rew"])
        rows = (torch.arange(n, device=transition["rew"].device) + self.head) % self.capacity
        for name, values in transition.items():
            self.data[name][rows] = values
        self.head, self.count = (self.head + n) % self.capacity, min(self.count + n, self.capacity)


class Agent:
    def __init__(self, width, device):
        self.actor = mlp(OBS, width, width, 2 * ACT).to(device)
        self.q1, self.q2 = (mlp(OBS + ACT, width, width, 1).to(device) for _ in range(2))
        self.t1, self.t2 = (copy.deepcopy(q).requires_grad_(False) for q in (self.q1, self.q2))
        self.log_temp = torch.zeros((), device=device, requires_grad=True)
        self.q_params = [*self.q1.parameters(), *self.q2.parameters()]
        self.t_params = [*self.t1.parameters(), *self.t2.parameters()]
        self.opt_pi = torch.optim.Adam([*self.actor.parameters(), self.log_temp], 3e-4, fused=True)
        self.opt_q = torch.optim.Adam(self.q_params, 3e-4, fused=True)

    def act(self, obs):
        mu, log_std = self.actor(obs).chunk(2, 1)
        std = log_std.clamp(-5, 2).exp()
        u = mu + std * torch.randn_like(mu)
        logp = torch.distributions.Normal(mu, std, validate_args=False).log_prob(u) - 2 * (0.6931 - u - F.softplus(-2 * u))
        return torch.tanh(u), logp.sum(1, keepdim=True)

    def learn(self, obs, act, rew, nxt):
        temp = self.log_temp.detach().exp()
        with torch.no_grad():
            a2, logp2 = self.act(nxt)
            x2 = torch.cat([nxt, a2], 1)
            goal = rew + 0.98 * (torch.minimum(self.t1(x2), self.t2(x2)) - temp * logp2)
        x = torch.cat([obs, act], 1)
        loss_q = F.mse_loss(self.q1(x), goal) + F.mse_loss(self.q2(x), goal)
        self.opt_q.zero_grad()
        loss_q.backward()
        self.opt_q.step()

        for p in self.q_params:
            p.requires_grad_(False)
        a, logp = self.act(obs)
        x = torch.cat([obs, a], 1)
        loss_pi = (temp * logp - torch.minimum(self.q1(x), self.q2(x))).mean() - self.log_temp * (logp.detach() - ACT).mean()
        self.opt_pi.zero_grad()
        loss_pi.backward()
        self.opt_pi.step()
        for p in self.q_params:
            p.requires_grad_(True)
        torch._foreach_lerp_(self.t_params, self.q_params, 0.005)
        return loss_q.detach(), loss_pi.detach()


def collect(env, agent, memory):
    with torch.no_grad():
        obs = env.state
        act, _ = agent.act(obs)
        nxt, rew = env.step(act)
    memory.add(obs=obs, act=act, rew=rew, next_obs=nxt)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--fix", default="")
    ap.add_argument("--device", default="cpu")
    args = ap.parse_args()
    big = args.device == "cuda"
    arms, width, batch, capacity = (512, 1024, 4096, 1_000_000) if big else (32, 256, 256, 200_000)
    torch.manual_seed(0)
    env = Arms(arms, args.device, torch.Generator().manual_seed(0))
    agent = Agent(width, args.device)
    memory = (RingMemory if args.fix == "ring" else Memory)(capacity, args.device)
    warm = torch.randn(capacity, OBS, device=args.device)         # exploration data from an earlier run
    memory.add(obs=warm, act=torch.rand(capacity, ACT, device=args.device) * 2 - 1,
               rew=-warm[:, :1].square(), next_obs=torch.tanh(warm))
    for step in range(args.steps):
        if step == args.steps // 3:
            if big:
                torch.cuda.synchronize()
            tick = time.perf_counter()
        collect(env, agent, memory)
        logs = agent.learn(*memory.draw(batch))
    if big:
        torch.cuda.synchronize()
    tock = time.perf_counter()
    print("loss_q %.4f loss_pi %.4f stored %d" % (logs[0].item(), logs[1].item(), len(memory)))
    print("mean step ms %.3f" % ((tock - tick) * 1e3 / (args.steps - args.steps // 3)))


if __name__ == "__main__":
    main()
