"""PPO on a GPU-vectorised locomotion task, Isaac style: 4096 environments, a rollout of 64 frames, then 5 epochs of
4 minibatches = 20 optimizer steps. A step is an optimizer step; every 20th is preceded by a rollout and its GAE.

Why: the policy, the physics and the update are all small ops; the host issues them slower than the device runs them, in
the rollout (64 frames one after the other) as much as in the updates.
Trap: the rollout comes only every 20th step.
Fix: cuda_graph: rollout with GAE in one graph, the minibatch update in another.
"""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["overhead", "launch-bound"]]
FIXES = ["cuda_graph"]
TRUTH_STEPS = 900
EPOCHS, PARTS = 5, 4


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes[:-2], sizes[1:-1]):
        layers += [nn.Linear(a, b), nn.ELU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


class Walkers:
    """A crude articulated thing: joints on springs, a body that is pushed along by them, falls and starts anew."""

    def __init__(self, count, joints, device):
        self.angle = torch.zeros(count, joints, device=device)
        self.speed = torch.zeros(count, joints, device=device)
        self.body = torch.zeros(count, 12, device=device)
        self.mix = torch.randn(joints, 12, device=device) * 0.1

    def observe(self):
        return torch.cat([self.angle.sin(), self.angle.cos(), self.speed * 0.1, self.body.clamp(-5, 5)], -1)

    def act(self, action):
        torque = action.clamp(-1, 1) * 20 - 0.5 * self.speed - 5 * self.angle
        self.speed.add_(torque, alpha=0.02).clamp_(-30, 30)
        self.angle.add_(self.speed, alpha=0.02)
        push = torch.tanh(self.speed @ self.mix)
        self.body.mul_(0.98).add_(push, alpha=0.02)
        reward = self.body[:, 0] - 0.001 * action.square().sum(-1) - 0.01 * self.angle.abs().mean(-1)
        fallen = (self.body[:, 1].abs() > 1.0) | (self.angle.abs().amax(-1) > 3.0)
        alive = (~fallen).float()[:, None]
        self.angle.mul_(alive)
        self.speed.mul_(alive)
        self.body.mul_(alive)
        return reward, fallen.float()


class PPO:
    def __init__(self, envs, frames, joints, device, capturable):
        self.envs, self.frames, self.joints, self.device = envs, frames, joints, device
        self.world = Walkers(envs, joints, device)
        wide = 3 * joints + 12
        self.actor, self.critic = mlp(wide, 512, 256, 128, joints).to(device), mlp(wide, 512, 256, 128, 1).to(device)
        self.log_std = nn.Parameter(torch.zeros(joints, device=device))
        self.parameters = [*self.actor.parameters(), *self.critic.parameters(), self.log_std]
        self.optimizer = torch.optim.Adam(self.parameters, lr=3e-4, capturable=capturable)
        shape = (frames, envs)
        self.obs = torch.zeros(*shape, wide, device=device)
        self.actions = torch.zeros(*shape, joints, device=device)
        self.logp, self.values, self.rewards, self.dones, self.advantages, self.returns = (
            torch.zeros(shape, device=device) for _ in range(6))
        self.pick = torch.zeros(frames * envs // PARTS, dtype=torch.long, device=device)

    def log_prob(self, mean, action):
        return (-0.5 * ((action - mean) / self.log_std.exp()).square() - self.log_std).sum(-1)

    @torch.no_grad()
    def rollout(self):
        for t in range(self.frames):
            obs = self.world.observe()
            mean = self.actor(obs)
            action = mean + self.log_std.exp() * torch.randn_like(mean)
            self.obs[t], self.actions[t] = obs, action
            self.logp[t] = self.log_prob(mean, action)
            self.values[t] = self.critic(obs).squeeze(-1)
            self.rewards[t], self.dones[t] = self.world.act(action)
        following, carried = self.critic(self.world.observe()).squeeze(-1), torch.zeros(self.envs, device=self.device)
        for t in reversed(range(self.frames)):
            going = 1 - self.dones[t]
            delta = self.rewards[t] + 0.99 * following * going - self.values[t]
            carried = delta + 0.99 * 0.95 * going * carried
            self.advantages[t] = carried
            following = self.values[t]
        self.returns.copy_(self.advantages + self.values)
        self.advantages.sub_(self.advantages.mean()).div_(self.advantages.std() + 1e-8)

    def update(self):
        def part(x):
            return x.flatten(0, 1).index_select(0, self.pick)

        obs, action, advantage = part(self.obs), part(self.actions), part(self.advantages)
        ratio = (self.log_prob(self.actor(obs), action) - part(self.logp)).exp()
        surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        value = self.critic(obs).squeeze(-1)
        loss = -surrogate + F.mse_loss(value, part(self.returns)) - 0.005 * self.log_std.sum()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()


def capture(function, warm=3):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warm):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


def main():
    args = arguments(4000, FIXES, cpu_steps=60)
    torch.set_float32_matmul_precision("high")
    graphs = args.fix == "cuda_graph" and args.gpu
    agent = PPO(*((4096, 64, 12) if args.gpu else (16, 4, 3)), args.device, graphs)
    rollout, update = agent.rollout, agent.update
    if graphs:
        rollout, update = capture(agent.rollout, 1), capture(agent.update)
    clock = Clock(args.steps, EPOCHS * PARTS)
    for step in range(args.steps):
        if step % (EPOCHS * PARTS) == 0:
            rollout()
        if step % PARTS == 0:
            order = torch.randperm(agent.frames * agent.envs, device=args.device).view(PARTS, -1)
        agent.pick.copy_(order[step % PARTS])
        update()
        clock.tick()
    print(f"reward {agent.rewards.mean().item():.3f}")
    clock.report()


if __name__ == "__main__":
    main()
