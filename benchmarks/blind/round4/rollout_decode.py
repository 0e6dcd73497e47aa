"""Policy rollouts for RLHF: a grouped-query decoder samples 128-token answers for 64 prompts, token by token.

Domain: language-model generation (inference). One step is one token for the whole batch.
Why: the model has 32 query heads on 4 key/value heads, and the attention was ported from multi-head code: each layer
  writes out keys and values eight times over (`expand` + `reshape` is a copy of the whole cache) before the attention
  kernel reads the copy. The copies move several times what the weights and the cache themselves need.
Trap: it is batched decoding, so "reading the weights and the cache is the memory roof" sounds right; the step grows
  within an answer and falls back; the test for finished answers syncs every 16th token; the last token of an answer
  scores the batch with a reward head and copies the answers to the host (a kind of step that comes every 128th time).
Fixes: fold_groups: the eight query heads of a group go in as eight query rows over the unexpanded cache;
  enable_gqa: scaled_dot_product_attention is told of the groups and reads the unexpanded cache itself.
"""

import torch
import torch.nn.functional as F
from torch import nn

from common import Clock, arguments

WALLS = [["bandwidth", "layout-copies"]]
FIXES = ["fold_groups", "enable_gqa"]
TRUTH_STEPS = 640


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def repeat_kv(x, groups):
    b, h, t, d = x.shape
    return x[:, :, None].expand(b, h, groups, t, d).reshape(b, h * groups, t, d)


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads, how):
        super().__init__()
        self.heads, self.kv_heads, self.size, self.how = heads, kv_heads, width // heads, how
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, cache, start, cos, sin):
        b, t, width = x.shape
        qkv = self.qkv(x).view(b, t, self.heads + 2 * self.kv_heads, self.size).transpose(1, 2)
        q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        keys, values = cache
        keys[:, :, start : start + t] = k
        values[:, :, start : start + t] = v
        k, v = keys[:, :, : start + t], values[:, :, : start + t]
        groups = self.heads // self.kv_heads
        if self.how == "fold_groups" and t == 1:
            h = F.scaled_dot_product_attention(q.reshape(b, self.kv_heads, groups, self.size), k, v)
            h = h.reshape(b, self.heads, 1, self.size)
        elif self.how == "enable_gqa":
            h = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1, enable_gqa=True)
        else:
            k, v = repeat_kv(k, groups), repeat_kv(v, groups)
            h = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        return self.out(h.transpose(1, 2).reshape(b, t, width))


class Layer(nn.Module):
    def __init__(self, width, hidden, heads, kv_heads, how):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads, kv_heads, how)
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x, cache, start, cos, sin):
        x = x + self.attention(self.norm1(x), cache, start, cos, sin)
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Policy(nn.Module):
    def __init__(self, vocab, width, hidden, depth, heads, kv_heads, length, how):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(Layer(width, hidden, heads, kv_heads, how) for _ in range(depth))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.value = nn.Linear(width, 1)
        size = width // heads
        freqs = torch.exp(torch.arange(0, size, 2, dtype=torch.float32) * (-9.2 / size))
        angle = torch.arange(length, dtype=torch.float32)[:, None] * freqs
        self.register_buffer("cos", angle.cos().to(torch.get_default_dtype()))
        self.register_buffer("sin", angle.sin().to(torch.get_default_dtype()))

    def forward(self, tokens, caches, start):
        x = self.embed(tokens)
        cos, sin = (table[start : start + tokens.shape[1]] for table in (self.cos, self.sin))
        for layer, cache in zip(self.layers, caches):
            x = layer(x, cache, start, cos, sin)
        return self.norm(x[:, -1])


def sample(logits, temperature=0.9, top_k=50):
    best, index = logits.float().topk(top_k, dim=-1)
    choice = torch.multinomial(F.softmax(best / temperature, dim=-1), 1)
    return index.gather(-1, choice)


@torch.inference_mode()
def main():
    args = arguments(TRUTH_STEPS, FIXES)
    torch.manual_seed(0)
    if args.gpu:
        batch, prompt, answer, dtype = 64, 1152, 128, torch.bfloat16
        vocab, width, hidden, depth, heads, kv_heads = 32000, 4096, 11008, 12, 32, 4
    else:
        batch, prompt, answer, dtype = 4, 24, 8, torch.float32
        vocab, width, hidden, depth, heads, kv_heads = 128, 64, 96, 2, 8, 2
    length = prompt + answer
    torch.set_default_dtype(dtype)
    with torch.device(args.device):
        policy = Policy(vocab, width, hidden, depth, heads, kv_heads, length, args.fix).eval()
        shape = (batch, kv_heads, length, width // heads)
        caches = [(torch.zeros(shape), torch.zeros(shape)) for _ in range(depth)]
        prompts = torch.randint(2, vocab, (batch, prompt))
    torch.set_default_dtype(torch.float32)

    # the prompts are read once; every answer to them starts from the same cached prefix
    last = []
    for i in range(0, batch, 4):
        part = [(k[i : i + 4], v[i : i + 4]) for k, v in caches]
        last.append(policy.head(policy(prompts[i : i + 4], part, 0)))
    last = torch.cat(last)

    rewards, lengths, early = [], [0], 0
    clock = Clock(args.steps, period=answer if args.steps > 3 * answer else 1)
    for step in range(args.steps):
        i = step % answer
        if i == 0:
            token, answers = sample(last), []
            finished = torch.zeros(batch, 1, dtype=torch.bool, device=args.device)
        x = policy(token, caches, prompt + i)
        token = sample(policy.head(x))
        finished |= token == 1
        answers.append(token)
        if i % 16 == 15 and bool(finished.all()):
            early += 1
        if i == answer - 1:
            reward = policy.value(x).float().squeeze(-1)
            texts = torch.cat(answers, dim=1).cpu()
            rewards.append(reward.mean().item())
            lengths = (texts != 1).sum(1).tolist()
        clock.tick()
    mean = sum(rewards) / max(len(rewards), 1)
    print(f"answers {len(rewards)} early {early} longest {max(lengths)} reward {mean:.4f}")
    clock.report()


if __name__ == "__main__":
    main()
