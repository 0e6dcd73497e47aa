"""Sampling stories: 48 streams, a prompt of 512 tokens and 256 new ones, no 4-gram may come twice. The rule is plain Python:
for every token the 4-grams of all the text so far are put into a dictionary anew.

Why: that takes longer than the model, and meanwhile the device has nothing to do. The `.tolist()` before it is a
sync, but what follows it is pure Python without an op.
Fix: incremental: the dictionary of a stream is kept and grows by one entry a token.
"""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["overhead", "host-work"]]
FIXES = ["incremental"]
TRUTH_STEPS = 512
N = 4


class Block(nn.Module):
    def __init__(self, d, heads, streams, length):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.register_buffer("cache", torch.zeros(2, streams, heads, length, d // heads))

    def forward(self, x, place):
        b, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, 3, self.heads, 1, -1).unbind(1)
        self.cache[0, :, :, place : place + 1] = k
        self.cache[1, :, :, place : place + 1] = v
        keys, values = self.cache[:, :, :, : place + 1]
        x = x + self.proj(F.scaled_dot_product_attention(q, keys, values).reshape(b, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Rescan:
    def __init__(self, texts):
        pass

    def banned(self, texts):
        result = []
        for text in texts:
            grams = {}
            for i in range(len(text) - N + 1):
                grams.setdefault(tuple(text[i : i + N - 1]), []).append(text[i + N - 1])
            result.append(grams.get(tuple(text[1 - N :]), []))
        return result


class Incremental:
    def __init__(self, texts):
        self.grams = []
        for text in texts:
            grams = {}
            for i in range(len(text) - N):
                grams.setdefault(tuple(text[i : i + N - 1]), []).append(text[i + N - 1])
            self.grams.append(grams)

    def banned(self, texts):
        result = []
        for text, grams in zip(texts, self.grams):
            grams.setdefault(tuple(text[-N:-1]), []).append(text[-1])
            result.append(grams.get(tuple(text[1 - N :]), []))
        return result


@torch.inference_mode()
def main():
    args = arguments(2048, FIXES, cpu_steps=24)
    d, heads, layers, vocab, streams, prompt, new = (1024, 16, 8, 32000, 48, 512, 256) if args.gpu else (32, 2, 2, 50, 2, 16, 8)
    torch.manual_seed(0)
    with torch.device(args.device):
        embed = nn.Embedding(vocab, d).bfloat16()
        blocks = nn.ModuleList(Block(d, heads, streams, prompt + new) for _ in range(layers)).bfloat16().eval()
    prompts = torch.randint(0, 40, (streams, prompt)).tolist()
    clock = Clock(args.steps, new)
    for step in range(args.steps):
        if step % new == 0:
            texts = [list(p) for p in prompts]
            rule = (Incremental if args.fix else Rescan)(texts)
            token = torch.tensor([t[-1] for t in texts], device=args.device)
        x = embed(token)
        for block in blocks:
            x = block(x, prompt + step % new)
        logits = F.linear(x, embed.weight).float()
        pairs = [(row, word) for row, words in enumerate(rule.banned(texts)) for word in words]
        if pairs:
            rows, words = torch.tensor(pairs, device=args.device).unbind(1)
            logits[rows, words] = float("-inf")
        token = torch.multinomial(F.softmax(logits / 0.8, -1), 1).squeeze(1)
        for text, word in zip(texts, token.tolist()):
            text.append(word)
        clock.tick()
    print("last words", [t[-1] for t in texts][:8])
    clock.report()


if __name__ == "__main__":
    main()
