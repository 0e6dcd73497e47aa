"""
Sample from a GPT with a key/value cache. The weights are random (no download); the work is that of the real ones.

$ python sampler.py --num_samples=6 --max_new_tokens=256
$ python sampler.py --model_type=gpt2-xl --batch_size=4
"""
import os
import math
import time
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F

# -----------------------------------------------------------------------------
model_type = 'gpt2-medium' # gpt2, gpt2-medium, gpt2-large, gpt2-xl or test
batch_size = 8 # sequences generated side by side
prompt_len = 256 # tokens in each prompt
num_samples = 6 # number of rounds; each one generates batch_size sequences
max_new_tokens = 256 # number of tokens generated in each sample: the steps of a round
temperature = 0.8 # 1.0 = no change, < 1.0 = less random, > 1.0 = more random, in predictions
top_k = 200 # retain only the top_k most likely tokens, clamp others to have 0 probability
stop_token = -1 # stop a round when all sequences have made this token; -1: never
kv_cache = 'dynamic' # 'dynamic' grows with the sequence, 'static' is allocated once
flash = False # use F.scaled_dot_product_attention
seed = 1337
device = 'cuda' # examples: 'cpu', 'cuda', 'cuda:0', 'cuda:1', etc.
dtype = 'float32' # 'float32' or 'bfloat16' or 'float16'
allow_tf32 = False # tf32 in matmul and cudnn
compile = False # use PyTorch 2.0 to compile the model to be faster
compile_mode = 'default' # 'default', 'reduce-overhead' or 'max-autotune'
exec(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'configurator.py')).read()) # overrides from command line or config file
# -----------------------------------------------------------------------------

torch.manual_seed(seed)
torch.cuda.manual_seed(seed)
torch.backends.cuda.matmul.allow_tf32 = allow_tf32
torch.backends.cudnn.allow_tf32 = allow_tf32
device_type = 'cuda' if 'cuda' in device else 'cpu' # for later use in torch.autocast
ptdtype = {'float32': torch.float32, 'bfloat16': torch.bfloat16, 'float16': torch.float16}[dtype]
ctx = nullcontext() if device_type == 'cpu' else torch.amp.autocast(device_type=device_type, dtype=ptdtype)
assert kv_cache in ('dynamic', 'static')

@dataclass
class GPTConfig:
    block_size: int = 1024
    vocab_size: int = 50257
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768

config_args = {
    'gpt2':         dict(n_layer=12, n_head=12, n_embd=768),  # 124M params
    'gpt2-medium':  dict(n_layer=24, n_head=16, n_embd=1024), # 350M params
    'gpt2-large':   dict(n_layer=36, n_head=20, n_embd=1280), # 774M params
    'gpt2-xl':      dict(n_layer=48, n_head=25, n_embd=1600), # 1558M params
    'test':         dict(n_layer=2, n_head=2, n_embd=64, vocab_size=512), # a toy, for checking
}[model_type]

class DynamicCache:
    """ one layer's keys and values, concatenated to at every step """

    def __init__(self):
        self.k, self.v = None, None

    def update(self, k, v):
        self.k = k if self.k is None else torch.cat((self.k, k), dim=2)
        self.v = v if self.v is None else torch.cat((self.v, v), dim=2)
        return self.k, self.v

class StaticCache(nn.Module):
    """ one layer's keys and values, for the longest sequence; written in place at the positions given """

    def __init__(self, B, n_head, max_len, hs, dtype):
        super().__init__()
        self.register_buffer('k', torch.zeros(B, n_head, max_len, hs, dtype=dtype), persistent=False)
        self.register_buffer('v', torch.zeros(B, n_head, max_len, hs, dtype=dtype), persistent=False)

    def update(self, pos, k, v):
        self.k[:, :, pos] = k.to(self.k.dtype)
        self.v[:, :, pos] = v.to(self.v.dtype)
        return self.k, self.v

class Attention(nn.Module):

    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.static = None # a StaticCache, when there is one

    def forward(self, x, pos, mask, cache):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        if self.static is not None:
            k, v = self.static.update(pos, k, v)
        else:
            k, v = cache.update(k, v)
        if flash:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(~mask, float('-inf'))
            att = F.softmax(att, dim=-1)
            y = att @ v.to(att.dtype) if att.dtype != v.dtype else att @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))

class Block(nn.Module):

    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd)

    def forward(self, x, pos, mask, cache):
        x = x + self.attn(self.ln_1(x), pos, mask, cache)
        h = self.c_fc(self.ln_2(x))
        h = 0.5 * h * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (h + 0.044715 * torch.pow(h, 3.0))))
        return x + self.c_proj(h)

class GPT(nn.Module):

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.h = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def setup_static(self, B, max_len, cache_dtype, dev):
        c = self.config
        for block in self.h:
            block.attn.static = StaticCache(B, c.n_head, max_len, c.n_embd // c.n_head, cache_dtype).to(dev)

    def forward(self, idx, pos, key_pos, caches=None):
        # pos: positions of idx; key_pos: positions of all keys attended to, this call's included
        mask = (key_pos[None, :] <= pos[:, None])[None, None]
        x = self.wte(idx) + self.wpe(pos)
        for i, block in enumerate(self.h):
            x = block(x, pos, mask, caches[i] if caches is not None else None)
        return self.lm_head(self.ln_f(x))

# model init
gptconf = GPTConfig(**config_args)
assert prompt_len + max_new_tokens <= gptconf.block_size
model = GPT(gptconf)
model.eval()
model.to(device)
print("number of parameters: %.2fM" % (sum(p.numel() for p in model.parameters()) / 1e6,))
max_len = prompt_len + max_new_tokens
if kv_cache == 'static':
    cache_dtype = ptdtype if device_type == 'cuda' else torch.float32
    model.setup_static(batch_size, max_len, cache_dtype, device)
decode = model # one token at a time
if compile:
    # the prefill happens once a round and stays eager
    decode = torch.compile(model, mode=None if compile_mode == 'default' else compile_mode)

# the prompts: the same in every round
gen = torch.Generator().manual_seed(seed)
prompt = torch.randint(0, gptconf.vocab_size, (batch_size, prompt_len), generator=gen).to(device)

def sample_token(logits):
    logits = logits[:, -1, :].float() / temperature
    if top_k > 0:
        v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
        logits[logits < v[:, [-1]]] = -float('Inf')
    probs = F.softmax(logits, dim=-1)
    return torch.multinomial(probs, num_samples=1)

def generate(idx):
    """ prefill with idx, then one token per step; returns the sequence and the steps taken """
    B, T = idx.size()
    all_pos = torch.arange(max_len, device=device)
    if kv_cache == 'static':
        caches = None
        logits = model(idx, all_pos[:T], all_pos)
    else:
        caches = [DynamicCache() for _ in range(gptconf.n_layer)]
        logits = model(idx, all_pos[:T], all_pos[:T], caches)
    idx_next = sample_token(logits)
    idx = torch.cat((idx, idx_next), dim=1)
    done = torch.zeros(B, 1, dtype=torch.bool, device=device)
    steps = 1
    while steps < max_new_tokens:
        t = T + steps - 1 # position of the token fed now
        pos = torch.tensor([t], device=device)
        if kv_cache == 'static':
            logits = decode(idx_next, pos, all_pos)
        else:
            logits = decode(idx_next, pos, all_pos[:t + 1], caches)
        idx_next = sample_token(logits)
        idx = torch.cat((idx, idx_next), dim=1)
        steps += 1
        if stop_token >= 0:
            done |= idx_next == stop_token
            if done.all():
                break
    return idx, steps

def sync():
    if device_type == 'cuda':
        torch.cuda.synchronize()

# run generation
step_ms = []
with torch.no_grad():
    with ctx:
        for k in range(num_samples):
            sync()
            t0 = time.time()
            y, steps = generate(prompt)
            sync()
            dt = time.time() - t0
            step_ms.append(dt * 1000 / steps)
            print(f"sample {k+1}/{num_samples}: {dt:.2f} s, {steps} steps, {step_ms[-1]:.3f} ms/step, {batch_size*steps/dt:.1f} tok/s")
            print(y[0, prompt_len:prompt_len + 16].tolist())
            print('---------------')

        # how the model likes the prompts (a check on the numerics, not timed)
        all_pos = torch.arange(max_len, device=device)
        n = 0 if kv_cache == 'static' else prompt_len
        keys = all_pos if n == 0 else all_pos[:n]
        logits = model(prompt, all_pos[:prompt_len], keys, None if n == 0 else [DynamicCache() for _ in model.h])
        nll = F.cross_entropy(logits[:, :-1].float().reshape(-1, logits.size(-1)), prompt[:, 1:].reshape(-1))
        print(f"prompt nll {nll.item():.5f}")

later = step_ms[len(step_ms) // 2:]
print(f"mean step ms {sum(later) / len(later):.3f}")
