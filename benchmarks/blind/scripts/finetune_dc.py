#!/usr/bin/env python
# coding=utf-8
"""Finetuning a BERT-like encoder for sequence classification on a (synthetic) sentence-pair task.

    python finetune_dc.py --output_dir out --max_steps 120 --per_device_train_batch_size 32 --max_seq_length 256

or with everything in a file: `python finetune_dc.py args.json`.
"""

import dataclasses
import json
import logging
import math
import os
import random
import sys
import time
import types
import typing
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, ArgumentTypeError
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Optional

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, Sampler

logger = logging.getLogger(__name__)


# ------------------------------------------------------------------ arguments

@dataclass
class ModelArguments:
    """Arguments pertaining to which model we are going to fine-tune."""

    vocab_size: int = field(default=30522, metadata={"help": "Size of the word-piece vocabulary."})
    hidden_size: int = field(default=768, metadata={"help": "Width of the encoder."})
    num_hidden_layers: int = field(default=12, metadata={"help": "Number of encoder layers."})
    num_attention_heads: int = field(default=12, metadata={"help": "Number of attention heads."})
    intermediate_size: int = field(default=3072, metadata={"help": "Width of the feed-forward layer."})
    max_position_embeddings: int = field(default=512, metadata={"help": "Longest sequence the model takes."})
    hidden_dropout_prob: float = field(default=0.1, metadata={"help": "Dropout of embeddings and hidden layers."})
    attention_probs_dropout_prob: float = field(default=0.1, metadata={"help": "Dropout of attention weights."})
    attn_implementation: str = field(
        default="eager", metadata={"help": "Attention to use.", "choices": ["eager", "sdpa"]}
    )


@dataclass
class DataTrainingArguments:
    """Arguments pertaining to what data we are going to input our model for training."""

    num_labels: int = field(default=3, metadata={"help": "Number of classes."})
    max_seq_length: int = field(default=256, metadata={"help": "Sequences longer than this are truncated."})
    pad_to_max_length: bool = field(
        default=True,
        metadata={"help": "Pad all samples to `max_seq_length`. If False, pad to the longest of each batch."},
    )
    max_train_samples: Optional[int] = field(default=None, metadata={"help": "Truncate the training set."})
    num_train_samples: int = field(default=20000, metadata={"help": "Size of the synthetic training set."})


@dataclass
class TrainingArguments:
    """Arguments of the training loop itself."""

    output_dir: Optional[str] = field(default=None, metadata={"help": "Where results are written; None: nowhere."})
    per_device_train_batch_size: int = field(default=32, metadata={"help": "Batch size per device for training."})
    gradient_accumulation_steps: int = field(default=1, metadata={"help": "Forward passes per optimizer step."})
    learning_rate: float = field(default=5e-5, metadata={"help": "The initial learning rate for AdamW."})
    weight_decay: float = field(default=0.0, metadata={"help": "Weight decay for AdamW if we apply some."})
    adam_beta1: float = field(default=0.9, metadata={"help": "Beta1 for AdamW."})
    adam_beta2: float = field(default=0.999, metadata={"help": "Beta2 for AdamW."})
    adam_epsilon: float = field(default=1e-8, metadata={"help": "Epsilon for AdamW."})
    max_grad_norm: float = field(default=1.0, metadata={"help": "Max gradient norm."})
    max_steps: int = field(default=120, metadata={"help": "Total number of optimizer steps."})
    warmup_ratio: float = field(default=0.1, metadata={"help": "Linear warmup over this fraction of the steps."})
    logging_steps: int = field(default=10, metadata={"help": "Log every X update steps."})
    logging_nan_inf_filter: bool = field(default=True, metadata={"help": "Filter nan and inf losses for logging."})
    seed: int = field(default=42, metadata={"help": "Random seed set at the beginning of training."})
    bf16: bool = field(default=False, metadata={"help": "Use bf16 (mixed) precision."})
    fp16: bool = field(default=False, metadata={"help": "Use fp16 (mixed) precision, with loss scaling."})
    tf32: Optional[bool] = field(default=None, metadata={"help": "Enable or disable tf32 matmuls."})
    optim: str = field(
        default="adamw_torch",
        metadata={"help": "The optimizer to use.", "choices": ["adamw_torch", "adamw_torch_fused"]},
    )
    gradient_checkpointing: bool = field(default=False, metadata={"help": "Save memory at the cost of speed."})
    torch_compile: bool = field(default=False, metadata={"help": "Compile the model with torch.compile."})
    torch_compile_backend: Optional[str] = field(default=None, metadata={"help": "Backend of torch.compile."})
    torch_compile_mode: Optional[str] = field(default=None, metadata={"help": "Mode of torch.compile."})
    group_by_length: bool = field(default=False, metadata={"help": "Batch samples of about the same length."})
    dataloader_drop_last: bool = field(default=True, metadata={"help": "Drop the last incomplete batch."})
    dataloader_num_workers: int = field(default=0, metadata={"help": "Subprocesses for loading; 0: main process."})
    dataloader_pin_memory: bool = field(default=True, metadata={"help": "Pin memory in data loaders."})
    dataloader_persistent_workers: bool = field(default=False, metadata={"help": "Keep workers after an epoch."})
    dataloader_prefetch_factor: Optional[int] = field(default=None, metadata={"help": "Batches ahead per worker."})
    use_cpu: bool = field(default=False, metadata={"help": "Stay on the CPU."})

    def __post_init__(self):
        if self.fp16 and self.bf16:
            raise ValueError("At most one of fp16 and bf16 can be True, but not both")
        if (self.torch_compile_mode is not None or self.torch_compile_backend is not None) and not self.torch_compile:
            self.torch_compile = True
        if self.torch_compile and self.torch_compile_backend is None:
            self.torch_compile_backend = "inductor"
        if self.dataloader_num_workers == 0 and self.dataloader_prefetch_factor is not None:
            raise ValueError("--dataloader_prefetch_factor can only be set with --dataloader_num_workers > 0")
        if self.torch_compile and self.gradient_checkpointing:
            logger.warning("torch_compile together with gradient_checkpointing: recomputation is part of the graph")

    @property
    def device(self):
        return torch.device("cuda" if torch.cuda.is_available() and not self.use_cpu else "cpu")


def string_to_bool(v):
    if isinstance(v, bool):
        return v
    if v.lower() in ("yes", "true", "t", "y", "1"):
        return True
    if v.lower() in ("no", "false", "f", "n", "0"):
        return False
    raise ArgumentTypeError(f"Truthy value expected: got {v} but expected one of yes/no, true/false, t/f, y/n, 1/0.")


class DataclassArgumentParser(ArgumentParser):
    """argparse over dataclasses: one option per field, in both spellings (a_b and a-b);
    a bool takes an optional value; a bool that is True by default also gets --no_<name>."""

    def __init__(self, dataclass_types, **kwargs):
        kwargs.setdefault("formatter_class", ArgumentDefaultsHelpFormatter)
        super().__init__(**kwargs)
        self.dataclass_types = list(dataclass_types)
        for dtype in self.dataclass_types:
            self._add_dataclass_arguments(dtype)

    @staticmethod
    def _plain_type(hint):
        origin = typing.get_origin(hint)
        if origin is typing.Union or origin is getattr(types, "UnionType", None):
            inner = [a for a in typing.get_args(hint) if a is not type(None)]
            assert len(inner) == 1, "only Optional[X] is supported"
            return inner[0], True
        return hint, False

    def _add_dataclass_arguments(self, dtype):
        hints = typing.get_type_hints(dtype)
        for f in dataclasses.fields(dtype):
            if not f.init:
                continue
            names = [f"--{f.name}"]
            if "_" in f.name:
                names.append(f"--{f.name.replace('_', '-')}")
            kind, optional = self._plain_type(hints[f.name])
            kwargs = dict(f.metadata)
            kwargs["default"] = f.default
            if kind is bool:
                kwargs.update(type=string_to_bool, nargs="?", const=True)
                self.add_argument(*names, dest=f.name, **kwargs)
                if f.default is True:
                    neg = [f"--no_{f.name}", f"--no-{f.name.replace('_', '-')}"]
                    self.add_argument(*neg, action="store_false", dest=f.name, default=argparse_suppress())
                continue
            kwargs["type"] = kind
            self.add_argument(*names, dest=f.name, **kwargs)

    def parse_args_into_dataclasses(self, args=None):
        namespace = self.parse_args(args)
        outputs = []
        for dtype in self.dataclass_types:
            keys = {f.name for f in dataclasses.fields(dtype) if f.init}
            outputs.append(dtype(**{k: v for k, v in vars(namespace).items() if k in keys}))
        return tuple(outputs)

    def parse_json_file(self, json_file):
        with open(json_file, encoding="utf-8") as fp:
            data = json.load(fp)
        outputs, used = [], set()
        for dtype in self.dataclass_types:
            keys = {f.name for f in dataclasses.fields(dtype) if f.init}
            outputs.append(dtype(**{k: v for k, v in data.items() if k in keys}))
            used |= keys
        extra = sorted(set(data) - used)
        if extra:
            raise ValueError(f"Some keys are not used by the parser: {extra}")
        return tuple(outputs)


def argparse_suppress():
    import argparse
    return argparse.SUPPRESS


# ------------------------------------------------------------------ data

class SyntheticTokenizer:
    """Greedy longest-match-first word pieces over a hashed vocabulary. Slow, like a Python tokenizer."""

    pad_token_id, cls_token_id, sep_token_id, unk_token_id = 0, 101, 102, 100

    def __init__(self, vocab_size, max_piece=6):
        self.vocab_size = vocab_size
        self.max_piece = max_piece

    @staticmethod
    def _hash(piece):
        h = 2166136261
        for ch in piece:
            h = ((h ^ ord(ch)) * 16777619) & 0xFFFFFFFF
        return h

    def _word(self, word):
        ids, start = [], 0
        while start < len(word):
            end = min(len(word), start + self.max_piece)
            while end > start + 1:
                h = self._hash(word[start:end])
                if h % 3 == 0:  # this piece "is in the vocabulary"
                    break
                end -= 1
            h = self._hash(word[start:end])
            ids.append(200 + h % (self.vocab_size - 200))
            start = end
        return ids

    def __call__(self, text_a, text_b, max_length):
        a = [i for w in text_a.split() for i in self._word(w)]
        b = [i for w in text_b.split() for i in self._word(w)]
        while len(a) + len(b) > max_length - 3:
            (a if len(a) > len(b) else b).pop()
        input_ids = [self.cls_token_id] + a + [self.sep_token_id] + b + [self.sep_token_id]
        return {
            "input_ids": input_ids,
            "token_type_ids": [0] * (len(a) + 2) + [1] * (len(b) + 1),
            "attention_mask": [1] * len(input_ids),
        }


class SentencePairs(Dataset):
    """Text is generated once, tokenized on access. The label shows in a few words of the second sentence."""

    def __init__(self, data_args, tokenizer, seed):
        self.tokenizer = tokenizer
        self.max_length = data_args.max_seq_length
        n = data_args.num_train_samples
        if data_args.max_train_samples is not None:
            n = min(n, data_args.max_train_samples)
        rng = random.Random(seed)
        letters = "etaoinshrdlu"
        words = ["".join(rng.choice(letters) for _ in range(rng.randint(2, 9))) for _ in range(5000)]
        marks = [["mark%s%d" % (letters[c % 12] * 2, i) for i in range(5)] for c in range(data_args.num_labels)]
        self.samples = []
        for _ in range(n):
            label = rng.randrange(data_args.num_labels)
            la = max(4, min(80, int(rng.lognormvariate(3.0, 0.6))))
            lb = max(4, min(80, int(rng.lognormvariate(3.0, 0.6))))
            a = [words[rng.randrange(5000)] for _ in range(la)]
            b = [words[rng.randrange(5000)] if rng.random() < 0.7 else rng.choice(marks[label]) for _ in range(lb)]
            self.samples.append((" ".join(a), " ".join(b), label))

    def __len__(self):
        return len(self.samples)

    def length_of(self, i):
        return len(self.samples[i][0]) + len(self.samples[i][1])

    def __getitem__(self, i):
        a, b, label = self.samples[i]
        feature = self.tokenizer(a, b, self.max_length)
        feature["label"] = label
        return feature


class DataCollator:
    def __init__(self, data_args, pad_token_id):
        self.max_length = data_args.max_seq_length if data_args.pad_to_max_length else None
        self.pad_token_id = pad_token_id

    def __call__(self, features):
        longest = self.max_length or max(len(f["input_ids"]) for f in features)
        batch = {}
        for key, pad in (("input_ids", self.pad_token_id), ("token_type_ids", 0), ("attention_mask", 0)):
            batch[key] = torch.tensor([f[key] + [pad] * (longest - len(f[key])) for f in features])
        batch["labels"] = torch.tensor([f["label"] for f in features])
        return batch


class LengthGroupedSampler(Sampler):
    def __init__(self, dataset, batch_size, generator):
        self.dataset, self.batch_size, self.generator = dataset, batch_size, generator

    def __len__(self):
        return len(self.dataset)

    def __iter__(self):
        order = torch.randperm(len(self.dataset), generator=self.generator).tolist()
        mega = self.batch_size * 50
        chunks = [order[i:i + mega] for i in range(0, len(order), mega)]
        for chunk in chunks:
            yield from sorted(chunk, key=self.dataset.length_of, reverse=True)


# ------------------------------------------------------------------ model

class Embeddings(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.word_embeddings = nn.Embedding(c.vocab_size, c.hidden_size, padding_idx=0)
        self.position_embeddings = nn.Embedding(c.max_position_embeddings, c.hidden_size)
        self.token_type_embeddings = nn.Embedding(2, c.hidden_size)
        self.LayerNorm = nn.LayerNorm(c.hidden_size, eps=1e-12)
        self.dropout = nn.Dropout(c.hidden_dropout_prob)
        self.register_buffer("position_ids", torch.arange(c.max_position_embeddings)[None], persistent=False)

    def forward(self, input_ids, token_type_ids):
        x = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        x = x + self.position_embeddings(self.position_ids[:, :input_ids.size(1)])
        return self.dropout(self.LayerNorm(x))


class EagerSelfAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.num_heads = c.num_attention_heads
        self.head_dim = c.hidden_size // c.num_attention_heads
        self.query = nn.Linear(c.hidden_size, c.hidden_size)
        self.key = nn.Linear(c.hidden_size, c.hidden_size)
        self.value = nn.Linear(c.hidden_size, c.hidden_size)
        self.dropout = nn.Dropout(c.attention_probs_dropout_prob)

    def split_heads(self, x):
        return x.view(x.size(0), x.size(1), self.num_heads, self.head_dim).permute(0, 2, 1, 3)

    def attend(self, q, k, v, mask):
        scores = torch.matmul(q, k.transpose(-1, -2))
        scores = scores / math.sqrt(self.head_dim)
        scores = scores + mask
        probs = self.dropout(F.softmax(scores, dim=-1))
        return torch.matmul(probs, v)

    def forward(self, x, mask):
        q = self.split_heads(self.query(x))
        k = self.split_heads(self.key(x))
        v = self.split_heads(self.value(x))
        y = self.attend(q, k, v, mask)
        return y.permute(0, 2, 1, 3).contiguous().view(x.size(0), x.size(1), -1)


class SdpaSelfAttention(EagerSelfAttention):
    def attend(self, q, k, v, mask):
        p = self.dropout.p if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype), dropout_p=p)


ATTENTION_CLASSES = {"eager": EagerSelfAttention, "sdpa": SdpaSelfAttention}


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.attention = ATTENTION_CLASSES[c.attn_implementation](c)
        self.attention_output = nn.Linear(c.hidden_size, c.hidden_size)
        self.attention_norm = nn.LayerNorm(c.hidden_size, eps=1e-12)
        self.intermediate = nn.Linear(c.hidden_size, c.intermediate_size)
        self.output = nn.Linear(c.intermediate_size, c.hidden_size)
        self.output_norm = nn.LayerNorm(c.hidden_size, eps=1e-12)
        self.dropout = nn.Dropout(c.hidden_dropout_prob)

    def forward(self, x, mask):
        a = self.dropout(self.attention_output(self.attention(x, mask)))
        x = self.attention_norm(x + a)
        h = self.output(F.gelu(self.intermediate(x)))
        return self.output_norm(x + self.dropout(h))


class EncoderForSequenceClassification(nn.Module):
    def __init__(self, c, num_labels):
        super().__init__()
        self.embeddings = Embeddings(c)
        self.layers = nn.ModuleList([Layer(c) for _ in range(c.num_hidden_layers)])
        self.pooler = nn.Linear(c.hidden_size, c.hidden_size)
        self.dropout = nn.Dropout(c.hidden_dropout_prob)
        self.classifier = nn.Linear(c.hidden_size, num_labels)
        self.gradient_checkpointing = False
        self.apply(self._init_weights)

    @staticmethod
    def _init_weights(m):
        if isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, std=0.02)
            nn.init.zeros_(m.bias)
        elif isinstance(m, nn.Embedding):
            nn.init.normal_(m.weight, std=0.02)

    def gradient_checkpointing_enable(self):
        self.gradient_checkpointing = True

    def forward(self, input_ids, attention_mask, token_type_ids, labels=None):
        # 1 for real tokens, 0 for padding -> 0 and a large negative number, added to the scores
        mask = (1.0 - attention_mask[:, None, None, :].to(self.classifier.weight.dtype)) * -10000.0
        x = self.embeddings(input_ids, token_type_ids)
        for layer in self.layers:
            if self.gradient_checkpointing and self.training:
                x = checkpoint(layer, x, mask, use_reentrant=False)
            else:
                x = layer(x, mask)
        pooled = torch.tanh(self.pooler(x[:, 0]))
        logits = self.classifier(self.dropout(pooled))
        loss = F.cross_entropy(logits.float(), labels) if labels is not None else None
        return loss, logits


# ------------------------------------------------------------------ trainer

class Trainer:
    def __init__(self, model, args, train_dataset, data_collator):
        self.args = args
        self.model = model.to(args.device)
        self.train_dataset = train_dataset
        self.data_collator = data_collator
        if args.gradient_checkpointing:
            self.model.gradient_checkpointing_enable()
        self.model_wrapped = self.model
        if args.torch_compile:
            self.model_wrapped = torch.compile(
                self.model, backend=args.torch_compile_backend, mode=args.torch_compile_mode
            )
        self.scaler = torch.amp.GradScaler(args.device.type, enabled=args.fp16)

    def get_train_dataloader(self):
        args = self.args
        gen = torch.Generator().manual_seed(args.seed)
        params = {
            "batch_size": args.per_device_train_batch_size,
            "collate_fn": self.data_collator,
            "num_workers": args.dataloader_num_workers,
            "pin_memory": args.dataloader_pin_memory and args.device.type == "cuda",
            "persistent_workers": args.dataloader_persistent_workers and args.dataloader_num_workers > 0,
            "drop_last": args.dataloader_drop_last,
            "generator": gen,
        }
        if args.dataloader_num_workers > 0:
            params["prefetch_factor"] = args.dataloader_prefetch_factor
        if args.group_by_length:
            params["sampler"] = LengthGroupedSampler(self.train_dataset, args.per_device_train_batch_size, gen)
        else:
            params["shuffle"] = True
        return DataLoader(self.train_dataset, **params)

    def create_optimizer_and_scheduler(self):
        args = self.args
        decay = [p for n, p in self.model.named_parameters() if "bias" not in n and "norm" not in n.lower()]
        rest = [p for n, p in self.model.named_parameters() if "bias" in n or "norm" in n.lower()]
        kwargs = dict(lr=args.learning_rate, betas=(args.adam_beta1, args.adam_beta2), eps=args.adam_epsilon)
        if args.optim == "adamw_torch_fused":
            kwargs["fused"] = True
        self.optimizer = torch.optim.AdamW(
            [{"params": decay, "weight_decay": args.weight_decay}, {"params": rest, "weight_decay": 0.0}], **kwargs
        )
        warmup = math.ceil(args.max_steps * args.warmup_ratio)

        def lr_lambda(step):
            if step < warmup:
                return step / max(1, warmup)
            return max(0.0, (args.max_steps - step) / max(1, args.max_steps - warmup))

        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lr_lambda)

    def autocast_smart_context_manager(self):
        if self.args.bf16:
            return torch.autocast(self.args.device.type, dtype=torch.bfloat16)
        if self.args.fp16:
            return torch.autocast(self.args.device.type, dtype=torch.float16)
        return nullcontext()

    def _prepare_inputs(self, inputs):
        return {k: v.to(self.args.device) for k, v in inputs.items()}

    def training_step(self, inputs):
        self.model_wrapped.train()
        inputs = self._prepare_inputs(inputs)
        with self.autocast_smart_context_manager():
            loss, _ = self.model_wrapped(**inputs)
        if self.args.gradient_accumulation_steps > 1:
            loss = loss / self.args.gradient_accumulation_steps
        self.scaler.scale(loss).backward()
        return loss.detach()

    def train(self):
        args = self.args
        self.create_optimizer_and_scheduler()
        loader = self.get_train_dataloader()
        tr_loss = torch.tensor(0.0, device=args.device)
        global_step, micro, epoch, logged_at = 0, 0, 0, 0
        durations = []
        self.model.zero_grad()
        logger.info("***** Running training *****")
        logger.info("  Num examples = %d", len(self.train_dataset))
        logger.info("  Total train batch size = %d", args.per_device_train_batch_size * args.gradient_accumulation_steps)
        logger.info("  Total optimization steps = %d", args.max_steps)
        tick = time.perf_counter()
        while global_step < args.max_steps:
            for inputs in loader:
                tr_loss_step = self.training_step(inputs)
                micro += 1
                if args.logging_nan_inf_filter and (torch.isnan(tr_loss_step) or torch.isinf(tr_loss_step)):
                    tr_loss += tr_loss / (1 + global_step - logged_at)
                else:
                    tr_loss += tr_loss_step
                if micro % args.gradient_accumulation_steps:
                    continue
                grad_norm = None
                if args.max_grad_norm is not None and args.max_grad_norm > 0:
                    self.scaler.unscale_(self.optimizer)
                    grad_norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), args.max_grad_norm)
                self.scaler.step(self.optimizer)
                self.scaler.update()
                self.lr_scheduler.step()
                self.model.zero_grad()
                global_step += 1

                if global_step % args.logging_steps == 0:
                    logs = {
                        "loss": round(tr_loss.item() / (global_step - logged_at), 4),
                        "grad_norm": round(float(grad_norm), 4) if grad_norm is not None else None,
                        "learning_rate": self.lr_scheduler.get_last_lr()[0],
                        "step": global_step,
                    }
                    tr_loss -= tr_loss
                    logged_at = global_step
                    print(logs, flush=True)
                if args.device.type == "cuda":
                    torch.cuda.synchronize()
                now = time.perf_counter()
                durations.append(now - tick)
                tick = now
                if global_step >= args.max_steps:
                    break
            epoch += 1
        return durations


def main():
    parser = DataclassArgumentParser((ModelArguments, DataTrainingArguments, TrainingArguments))
    if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
        model_args, data_args, training_args = parser.parse_json_file(os.path.abspath(sys.argv[1]))
    else:
        model_args, data_args, training_args = parser.parse_args_into_dataclasses()

    logging.basicConfig(
        format="%(asctime)s - %(levelname)s - %(name)s - %(message)s",
        datefmt="%m/%d/%Y %H:%M:%S",
        handlers=[logging.StreamHandler(sys.stdout)],
        level=logging.INFO,
    )
    logger.info("device: %s, bf16: %s, fp16: %s", training_args.device, training_args.bf16, training_args.fp16)

    if training_args.tf32 is not None:
        torch.backends.cuda.matmul.allow_tf32 = training_args.tf32
        torch.backends.cudnn.allow_tf32 = training_args.tf32

    random.seed(training_args.seed)
    torch.manual_seed(training_args.seed)

    if data_args.max_seq_length > model_args.max_position_embeddings:
        raise ValueError("max_seq_length is larger than what the model can take")
    tokenizer = SyntheticTokenizer(model_args.vocab_size)
    train_dataset = SentencePairs(data_args, tokenizer, training_args.seed)
    model = EncoderForSequenceClassification(model_args, data_args.num_labels)
    logger.info("Number of parameters: %d", sum(p.numel() for p in model.parameters()))

    trainer = Trainer(model, training_args, train_dataset, DataCollator(data_args, tokenizer.pad_token_id))
    durations = trainer.train()

    later = durations[len(durations) // 2:]
    mean_ms = 1000 * sum(later) / len(later)
    total = training_args.per_device_train_batch_size * training_args.gradient_accumulation_steps
    metrics = {"train_samples_per_second": round(total / mean_ms * 1000, 2), "mean_step_ms": round(mean_ms, 3)}
    if training_args.output_dir is not None:
        os.makedirs(training_args.output_dir, exist_ok=True)
        with open(os.path.join(training_args.output_dir, "train_results.json"), "w") as fp:
            json.dump(metrics, fp, indent=2)
    print(metrics)
    print(f"mean step ms {mean_ms:.3f}")


if __name__ == "__main__":
    main()
