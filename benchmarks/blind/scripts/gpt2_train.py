"""
Reference GPT-2 training loop: the PyTorch side against which the C port is compared.

Single GPU, everything default (slow, exact):
    $ python gpt2_train.py
Several GPUs:
    $ torchrun --standalone --nproc_per_node=8 gpt2_train.py --zero_stage 1

The tokens are synthetic and made once, before the loop, so no download is needed.
"""

import os
import math
import time
import inspect
import struct
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed import init_process_group, destroy_process_group
from torch.distributed.optim import ZeroRedundancyOptimizer

# -----------------------------------------------------------------------------
# The model

# module-wide switch, set from --flash: 1 = fused attention, 0 = written out
FLASH = 0


class NewGELU(nn.Module):
    """tanh approximation, written out so that the C code can be read beside it"""

    def forward(self, x):
        cube = torch.pow(x, 3.0)
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * cube)
        return 0.5 * x * (1.0 + torch.tanh(inner))


class CausalSelfAttention(nn.Module):

    def __init__(self, config):
        super().__init__()
        assert config.n_embd % config.n_head == 0
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.c_proj.LLMC_RESIDUAL_SCALE_FLAG = 1
        self.n_head = config.n_head
        self.n_embd = config.n_embd
        mask = torch.tril(torch.ones(config.block_size, config.block_size))
        self.register_buffer("bias", mask.view(1, 1, config.block_size, config.block_size))

    def forward(self, x):
        B, T, C = x.size()
        hs = C // self.n_head
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q = q.view(B, T, self.n_head, hs).transpose(1, 2)  # (B, nh, T, hs)
        k = k.view(B, T, self.n_head, hs).transpose(1, 2)
        v = v.view(B, T, self.n_head, hs).transpose(1, 2)
        if FLASH:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            # materialises the (B, nh, T, T) matrix
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(hs))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            att = F.softmax(att, dim=-1)
            y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)


class MLP(nn.Module):

    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.gelu = NewGELU()
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd)
        self.c_proj.LLMC_RESIDUAL_SCALE_FLAG = 1

    def forward(self, x):
        return self.c_proj(self.gelu(self.c_fc(x)))


class Block(nn.Module):

    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.mlp = MLP(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))
        return x


@dataclass
class GPTConfig:
    block_size: int = 1024
    vocab_size: int = 50257
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768


class GPT(nn.Module):

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(config.vocab_size, config.n_embd),
            wpe=nn.Embedding(config.block_size, config.n_embd),
            h=nn.ModuleList([Block(config) for _ in range(config.n_layer)]),
            ln_f=nn.LayerNorm(config.n_embd),
        ))
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.LLMC_SKIP_INIT = 1  # tied to wte, initialised there
        self.transformer.wte.weight = self.lm_head.weight
        # own generator: the same weights whatever else drew random numbers
        self.init_rng = torch.Generator()
        self.init_rng.manual_seed(42)
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            std = 0.02
            if hasattr(module, "LLMC_RESIDUAL_SCALE_FLAG"):
                std /= math.sqrt(2 * self.config.n_layer)
            if not hasattr(module, "LLMC_SKIP_INIT"):
                torch.nn.init.normal_(module.weight, mean=0.0, std=std, generator=self.init_rng)
            if module.bias is not None:
                torch.nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02, generator=self.init_rng)

    def forward(self, idx, targets=None, return_logits=True):
        device = idx.device
        b, t = idx.size()
        assert t <= self.config.block_size, f"sequence of {t} does not fit block size {self.config.block_size}"
        pos = torch.arange(0, t, dtype=torch.long, device=device)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)

        if targets is not None:
            logits = self.lm_head(x)
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        else:
            logits = self.lm_head(x[:, [-1], :])
            loss = None
        if not return_logits:
            logits = None
        return logits, loss

    def configure_optimizers(self, weight_decay, learning_rate, betas, device_type, zero_stage):
        param_dict = {n: p for n, p in self.named_parameters() if p.requires_grad}
        decay_params = [p for p in param_dict.values() if p.dim() >= 2]
        nodecay_params = [p for p in param_dict.values() if p.dim() < 2]
        optim_groups = [
            {"params": decay_params, "weight_decay": weight_decay},
            {"params": nodecay_params, "weight_decay": 0.0},
        ]
        print0(f"decayed tensors: {len(decay_params)}, with {sum(p.numel() for p in decay_params):,} parameters")
        print0(f"non-decayed tensors: {len(nodecay_params)}, with {sum(p.numel() for p in nodecay_params):,} parameters")
        fused_available = "fused" in inspect.signature(torch.optim.AdamW).parameters
        use_fused = fused_available and device_type == "cuda"
        print0(f"using fused AdamW: {use_fused}")
        if zero_stage == 1:
            print0("using ZeroRedundancyOptimizer")
            optimizer = ZeroRedundancyOptimizer(**optim_groups[0], optimizer_class=torch.optim.AdamW,
                                                lr=learning_rate, betas=betas, fused=use_fused)
            optimizer.add_param_group(optim_groups[1])
        else:
            print0("using regular AdamW")
            optimizer = torch.optim.AdamW(optim_groups, lr=learning_rate, betas=betas, fused=use_fused)
        return optimizer

    @torch.no_grad()
    def generate(self, idx, max_new_tokens, temperature=1.0, top_k=None):
        for _ in range(max_new_tokens):
            idx_cond = idx if idx.size(1) <= self.config.block_size else idx[:, -self.config.block_size:]
            logits, _ = self(idx_cond)
            logits = logits[:, -1, :] / temperature
            if top_k is not None:
                v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                logits[logits < v[:, [-1]]] = -float("inf")
            idx = torch.cat((idx, torch.multinomial(F.softmax(logits, dim=-1), 1)), dim=1)
        return idx


# -----------------------------------------------------------------------------
# Data: a token "shard" held in memory, walked in order by all processes

def make_synthetic_shard(ntok, vocab_size, seed):
    # each token is, mostly, a fixed function of the one before it, with Zipf-like noise
    # in between: something there is to be learnt within some dozens of steps
    rng = np.random.default_rng(seed)
    zipf = np.minimum(rng.zipf(1.3, size=ntok) - 1, vocab_size - 1).astype(np.int64)
    toks = zipf.copy()
    follow = rng.random(ntok) < 0.5
    toks[1:] = np.where(follow[1:], (zipf[:-1] * 31 + 17) % vocab_size, zipf[1:])
    return toks.astype(np.uint16)


class DistributedDataLoader:
    def __init__(self, tokens, B, T, process_rank, num_processes):
        self.tokens = tokens
        self.B, self.T = B, T
        self.process_rank = process_rank
        self.num_processes = num_processes
        assert len(tokens) >= num_processes * B * T + 1, "shard too small for this batch"
        self.reset()

    def reset(self):
        self.current_position = self.process_rank * self.B * self.T

    def next_batch(self):
        B, T = self.B, self.T
        buf = self.tokens[self.current_position: self.current_position + B * T + 1]
        buf = torch.tensor(buf.astype(np.int32), dtype=torch.long)
        x = (buf[:-1]).view(B, T)
        y = (buf[1:]).view(B, T)
        self.current_position += B * T * self.num_processes
        if self.current_position + (B * T * self.num_processes + 1) > len(self.tokens):
            self.reset()
        return x, y


# -----------------------------------------------------------------------------
# debug state for the C side

def write_state(model, x, y, loss, filename):
    header = np.zeros(256, dtype=np.int32)
    header[0], header[1], header[2], header[3] = 20240327, 2, x.size(0), x.size(1)
    wte_grad = model.lm_head.weight.grad
    with open(filename, "wb") as f:
        f.write(header.tobytes())
        f.write(x.cpu().numpy().astype("int32").tobytes())
        f.write(y.cpu().numpy().astype("int32").tobytes())
        f.write(struct.pack("<f", loss.item()))
        f.write(wte_grad.detach().cpu().to(torch.float32).numpy()[:64].tobytes())
    print0(f"wrote {filename}")


# -----------------------------------------------------------------------------

def print0(*args, **kwargs):
    # only the first process speaks
    if int(os.environ.get("RANK", 0)) == 0:
        print(*args, **kwargs)


if __name__ == "__main__":
    import argparse
    print0(f"Running pytorch {torch.version.__version__}")

    parser = argparse.ArgumentParser()
    # file system input / output
    parser.add_argument("--num_shard_tokens", type=int, default=4 * 1024 * 1024, help="synthetic tokens to make")
    parser.add_argument("--output_dir", type=str, default="", help="output directory to which to write logs")
    parser.add_argument("--model", type=str, default="d12", help="d4|d12|d24|d36|d48")
    # token layout for each step of the optimization
    parser.add_argument("--batch_size", type=int, default=16, help="batch size, in units of #batch dimensions")
    parser.add_argument("--sequence_length", type=int, default=1024, help="sequence length")
    parser.add_argument("--total_batch_size", type=int, default=16384, help="total desired batch size, in units of #tokens")
    # workload (number of steps)
    parser.add_argument("--num_iterations", type=int, default=80, help="number of iterations to run")
    parser.add_argument("--inference_only", type=int, default=0, help="only run inference")
    # optimization
    parser.add_argument("--learning_rate", type=float, default=3e-4, help="learning rate after warmup")
    parser.add_argument("--warmup_iters", type=int, default=10, help="learning rate warmup iterations")
    parser.add_argument("--learning_rate_decay_frac", type=float, default=0.1, help="final lr as a fraction of the top lr")
    parser.add_argument("--weight_decay", type=float, default=0.1, help="weight decay")
    parser.add_argument("--grad_clip", type=float, default=1.0, help="maximum gradient magnitude")
    # evaluation
    parser.add_argument("--val_loss_every", type=int, default=0, help="every how many steps to evaluate val loss?")
    parser.add_argument("--val_max_steps", type=int, default=10, help="how many batches of val to average?")
    parser.add_argument("--sample_every", type=int, default=0, help="how often to sample from the model?")
    # debugging
    parser.add_argument("--overfit_single_batch", type=int, default=0, help="overfit just one batch of data")
    # numerics
    parser.add_argument("--tensorcores", type=int, default=0, help="use tensorcores (TF32)")
    # memory management
    parser.add_argument("--device", type=str, default="", help="by default we autodetect, or set it here")
    parser.add_argument("--compile", type=int, default=0, help="torch.compile the model")
    parser.add_argument("--flash", type=int, default=0, help="use flash attention")
    parser.add_argument("--dtype", type=str, default="float32", help="float32|float16|bfloat16")
    parser.add_argument("--zero_stage", type=int, default=0, help="zero redundancy optimizer stage (0/1/2/3)")
    # python -> C bridge
    parser.add_argument("--write_tensors", type=int, default=0, help="write tensors to disk")
    args = parser.parse_args()

    # args error checking and convenience variables
    B, T = args.batch_size, args.sequence_length
    assert 1 <= T <= 1024
    assert args.dtype in {"float32", "float16", "bfloat16"}
    assert args.model in {"d4", "d12", "d24", "d36", "d48"}

    # set up DDP (distributed data parallel). torchrun sets this env variable
    ddp = int(os.environ.get("RANK", -1)) != -1
    if ddp:
        assert torch.cuda.is_available(), "for now i think we need CUDA for DDP"
        init_process_group(backend="nccl")
        ddp_rank = int(os.environ["RANK"])
        ddp_local_rank = int(os.environ["LOCAL_RANK"])
        ddp_world_size = int(os.environ["WORLD_SIZE"])
        device = f"cuda:{ddp_local_rank}"
        torch.cuda.set_device(device)
        master_process = ddp_rank == 0
        zero_stage = args.zero_stage
    else:
        ddp_rank, ddp_local_rank, ddp_world_size = 0, 0, 1
        zero_stage = 0
        master_process = True
        if args.device:
            device = args.device
        else:
            device = "cpu"
            if torch.cuda.is_available():
                device = "cuda"
            elif hasattr(torch.backends, "mps") and torch.backends.mps.is_available():
                device = "mps"
    print0(f"using device: {device}")
    device_type = "cuda" if "cuda" in device else ("mps" if "mps" in device else "cpu")

    # gradient accumulation, from the wanted number of tokens per step
    tokens_per_fwdbwd = B * T * ddp_world_size
    assert args.total_batch_size % tokens_per_fwdbwd == 0, \
        f"total_batch_size {args.total_batch_size} is not a multiple of {tokens_per_fwdbwd}"
    grad_accum_steps = args.total_batch_size // tokens_per_fwdbwd
    print0(f"total desired batch size: {args.total_batch_size}")
    print0(f"=> calculated gradient accumulation steps: {grad_accum_steps}")

    # the context manager of the forward pass, in the dtype asked for
    ptdtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[args.dtype]
    ctx = torch.amp.autocast(device_type=device_type, dtype=ptdtype)

    # rng / reproducibility
    torch.manual_seed(42)
    if torch.cuda.is_available():
        torch.cuda.manual_seed(42)

    # set the torch precision mode to use TensorFloat32 (TF32) for matmuls
    if args.tensorcores:
        torch.set_float32_matmul_precision("high")

    # turn on/off flash attention
    assert args.flash in {0, 1}
    FLASH = args.flash

    # init the model, from scratch
    model_config = {
        "d4": GPTConfig(vocab_size=2048, n_layer=4, n_head=4, n_embd=128),  # toy, for checking
        "d12": GPTConfig(n_layer=12, n_head=12, n_embd=768),
        "d24": GPTConfig(n_layer=24, n_head=16, n_embd=1024),
        "d36": GPTConfig(n_layer=36, n_head=20, n_embd=1280),
        "d48": GPTConfig(n_layer=48, n_head=25, n_embd=1600),
    }[args.model]
    model = GPT(model_config)
    model.train()
    model.to(device)
    if args.compile:
        if hasattr(torch, "_inductor"):
            import torch._inductor.config as config
            config.coordinate_descent_tuning = True
        print0("compiling the model...")
        model = torch.compile(model)

    # -------------------------------------------------------------------------
    # data
    train_loader = DistributedDataLoader(
        make_synthetic_shard(args.num_shard_tokens, model_config.vocab_size, 1), B, T, ddp_rank, ddp_world_size)
    val_loader = None
    if args.val_loss_every > 0:
        val_loader = DistributedDataLoader(
            make_synthetic_shard((args.val_max_steps + 1) * B * T * ddp_world_size, model_config.vocab_size, 2),
            B, T, ddp_rank, ddp_world_size)

    if args.write_tensors and not args.inference_only and master_process:
        x, y = train_loader.next_batch()
        x, y = x.to(device), y.to(device)
        raw = getattr(model, "_orig_mod", model)
        logits, loss = raw(x, y)
        loss.backward()
        write_state(raw, x, y, loss, f"gpt2_{args.model}_debug_state.bin")
        raw.zero_grad(set_to_none=True)
        train_loader.reset()

    # -------------------------------------------------------------------------
    # main training loop
    if ddp:
        model = DDP(model, device_ids=[ddp_local_rank])
    raw_model = model.module if ddp else model

    optimizer = raw_model.configure_optimizers(weight_decay=args.weight_decay, learning_rate=args.learning_rate,
                                               betas=(0.9, 0.95), device_type=device_type, zero_stage=zero_stage)

    def get_lr(it):
        min_lr = args.learning_rate * args.learning_rate_decay_frac
        if it < args.warmup_iters:
            return args.learning_rate * (it + 1) / args.warmup_iters
        if it > args.num_iterations:
            return min_lr
        decay_ratio = (it - args.warmup_iters) / max(1, args.num_iterations - args.warmup_iters)
        coeff = 0.5 * (1.0 + math.cos(math.pi * decay_ratio))
        return min_lr + coeff * (args.learning_rate - min_lr)

    logfile = None
    if args.output_dir:
        os.makedirs(args.output_dir, exist_ok=True)
        logfile = os.path.join(args.output_dir, "main.log")
        with open(logfile, "w") as f:
            pass

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    timings = []
    norm = -1.0
    for step in range(args.num_iterations + 1):
        last_step = step == args.num_iterations

        # once in a while evaluate the validation dataset
        if val_loader is not None and (step % args.val_loss_every == 0 or last_step):
            model.eval()
            val_loader.reset()
            with torch.no_grad():
                val_loss = 0.0
                for _ in range(args.val_max_steps):
                    x, y = val_loader.next_batch()
                    x, y = x.to(device), y.to(device)
                    with ctx:
                        _, loss = model(x, y, return_logits=False)
                    val_loss += loss.item()
                val_loss /= args.val_max_steps
            print0(f"val loss {val_loss}")
            if master_process and logfile is not None:
                with open(logfile, "a") as f:
                    f.write("s:%d tel:%f\n" % (step, val_loss))

        # once in a while perform model inference on the master process
        if args.sample_every > 0 and (step % args.sample_every == 0 or last_step) and master_process:
            model.eval()
            xg = torch.zeros((1, 1), dtype=torch.long, device=device)
            yg = raw_model.generate(xg, 32, temperature=1.0, top_k=40)
            print0("sample:", yg[0].tolist())

        # evaluate once more at the end, but do not train
        if last_step:
            break

        # --------------- TRAINING SECTION BEGIN -----------------
        t0 = time.time()
        model.train()
        optimizer.zero_grad(set_to_none=True)
        if args.overfit_single_batch:
            train_loader.reset()
        lossf = 0.0
        for micro_step in range(grad_accum_steps):
            x, y = train_loader.next_batch()
            x, y = x.to(device), y.to(device)
            if ddp:
                model.require_backward_grad_sync = micro_step == grad_accum_steps - 1
            with (torch.no_grad() if args.inference_only else nullcontext()):
                with ctx:
                    _, loss = model(x, y, return_logits=False)
                    loss = loss / grad_accum_steps
                    lossf += loss.detach()
            if not args.inference_only:
                loss.backward()
        if ddp:
            dist.all_reduce(lossf, op=dist.ReduceOp.AVG)
        lossf = lossf.item()
        lr = get_lr(step)
        if not args.inference_only:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
            for param_group in optimizer.param_groups:
                param_group["lr"] = lr
            optimizer.step()
        # --------------- TRAINING SECTION END -------------------

        # wait on the device so that the timing is right
        if device_type == "mps":
            torch.mps.synchronize()
        elif device_type == "cuda":
            torch.cuda.synchronize()
        t1 = time.time()
        tokens_per_second = grad_accum_steps * ddp_world_size * B * T / (t1 - t0)
        print0(f"step {step+1:4d}/{args.num_iterations} | train loss {lossf:.6f} | norm {norm:.4f} | lr {lr:.2e} | "
               f"({(t1-t0)*1000:.2f} ms | {tokens_per_second:.0f} tok/s)")
        if master_process and logfile is not None:
            with open(logfile, "a") as f:
                f.write("s:%d trl:%f\n" % (step, lossf))
        # keep track of smooth timings, last 20 iterations
        if step > 0 and step > args.num_iterations - 20 - 1:
            timings.append(t1 - t0)

    timings = timings[-20:]
    print0(f"final {len(timings)} iters avg: {np.mean(timings)*1000:.3f}ms")
    if device_type == "cuda":
        print0(f"peak memory consumption: {torch.cuda.max_memory_allocated() // 1024 // 1024} MiB")
    print0(f"mean step ms {np.mean(timings)*1000:.3f}")

    if ddp:
        destroy_process_group()
