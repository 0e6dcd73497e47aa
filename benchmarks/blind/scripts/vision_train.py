#!/usr/bin/env python3
""" Image classification training script

A lean single-file trainer with the usual options: AMP, EMA, channels-last, gradient clipping and
accumulation, torch.compile. Images are synthetic: a Dataset draws each one and then augments it
on the CPU like a JPEG pipeline would (minus the decoding).

    python vision_train.py --model resnet50 -b 128 --amp --channels-last
"""
import argparse
import copy
import importlib.util
import logging
import math
import random
import time
from collections import OrderedDict
from contextlib import suppress
from functools import partial

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

_logger = logging.getLogger('train')
has_compile = hasattr(torch, 'compile')
has_torchvision = importlib.util.find_spec('torchvision') is not None

IMAGENET_DEFAULT_MEAN = (0.485, 0.456, 0.406)
IMAGENET_DEFAULT_STD = (0.229, 0.224, 0.225)

parser = argparse.ArgumentParser(description='PyTorch Image Training')

# Dataset parameters
group = parser.add_argument_group('Dataset parameters')
group.add_argument('data', nargs='?', metavar='DIR', const=None, help='path to dataset (unused: synthetic)')
group.add_argument('--num-samples', default=1281167, type=int, metavar='N', help='nominal size of the train set')
group.add_argument('--val-samples', default=0, type=int, metavar='N', help='size of the validation set (0: none)')

# Model parameters
group = parser.add_argument_group('Model parameters')
group.add_argument('--model', default='resnet50', type=str, metavar='MODEL', help='resnet26 | resnet50 | resnet101')
group.add_argument('--num-classes', type=int, default=1000, metavar='N', help='number of label classes')
group.add_argument('--img-size', type=int, default=224, metavar='N', help='image size')
group.add_argument('-b', '--batch-size', type=int, default=128, metavar='N', help='input batch size')
group.add_argument('--channels-last', action='store_true', default=False, help='use channels_last memory layout')
group.add_argument('--grad-accum-steps', type=int, default=1, metavar='N',
                   help='steps to accumulate gradients over; effective batch is N * batch-size')
group.add_argument('--grad-checkpointing', action='store_true', default=False,
                   help='enable gradient checkpointing through model stages')
group.add_argument('--torchcompile', nargs='?', type=str, default=None, const='inductor',
                   help='enable compilation w/ specified backend (default: inductor)')
group.add_argument('--torchcompile-mode', type=str, default=None, help='torch.compile mode (default: None)')

# Device & distributed
group = parser.add_argument_group('Device parameters')
group.add_argument('--device', default=None, type=str, help='device to use (default: cuda when there)')
group.add_argument('--amp', action='store_true', default=False, help='use native AMP for mixed precision training')
group.add_argument('--amp-dtype', default='float16', type=str, help='lower precision AMP dtype (default: float16)')
group.add_argument('--model-dtype', default=None, type=str, help='model dtype override (default: float32)')
group.add_argument('--deterministic', action='store_true', default=False, help='no cudnn benchmark, deterministic convs')

# Optimizer parameters
group = parser.add_argument_group('Optimizer parameters')
group.add_argument('--opt', default='sgd', type=str, metavar='OPT', help='sgd | adamw')
group.add_argument('--opt-eps', default=None, type=float, help='optimizer epsilon')
group.add_argument('--momentum', type=float, default=0.9, metavar='M', help='optimizer momentum')
group.add_argument('--weight-decay', type=float, default=2e-5, help='weight decay')
group.add_argument('--clip-grad', type=float, default=None, metavar='NORM', help='clip gradients (default: None)')
group.add_argument('--clip-mode', type=str, default='norm', help='one of "norm", "value"')
group.add_argument('--opt-foreach', dest='opt_foreach', type=lambda s: s.lower() in ('1', 'true', 'yes'), default=False,
                   help='multi-tensor optimizer (default: False)')
group.add_argument('--opt-fused', action='store_true', default=False, help='fused optimizer kernels')

# Learning rate schedule parameters
group = parser.add_argument_group('Learning rate schedule parameters')
group.add_argument('--sched', type=str, default='cosine', metavar='SCHEDULER', help='cosine | none')
group.add_argument('--lr', type=float, default=0.1, metavar='LR', help='learning rate')
group.add_argument('--min-lr', type=float, default=0.0, metavar='LR', help='lower lr bound')
group.add_argument('--warmup-updates', type=int, default=20, metavar='N', help='updates of linear warmup')
group.add_argument('--max-updates', type=int, default=100, metavar='N', help='stop after this many optimizer updates')

# Augmentation & regularization parameters
group = parser.add_argument_group('Augmentation and regularization parameters')
group.add_argument('--scale', type=float, nargs='+', default=[0.08, 1.0], metavar='PCT', help='random resize scale')
group.add_argument('--ratio', type=float, nargs='+', default=[3. / 4., 4. / 3.], metavar='RATIO', help='random aspect')
group.add_argument('--hflip', type=float, default=0.5, help='horizontal flip probability')
group.add_argument('--color-jitter', type=float, default=0.4, metavar='PCT', help='color jitter factor')
group.add_argument('--mixup', type=float, default=0.0, help='mixup alpha, enabled if > 0')
group.add_argument('--smoothing', type=float, default=0.1, help='label smoothing')
group.add_argument('--drop', type=float, default=0.0, metavar='PCT', help='dropout rate')

# EMA
group = parser.add_argument_group('Model exponential moving average parameters')
group.add_argument('--model-ema', action='store_true', default=False, help='track moving average of model weights')
group.add_argument('--model-ema-force-cpu', action='store_true', default=False, help='keep the average on the CPU')
group.add_argument('--model-ema-decay', type=float, default=0.9998, help='decay factor')

# Misc
group = parser.add_argument_group('Miscellaneous parameters')
group.add_argument('--seed', type=int, default=42, metavar='S', help='random seed')
group.add_argument('--log-interval', type=int, default=10, metavar='N', help='batches between log lines')
group.add_argument('-j', '--workers', type=int, default=4, metavar='N', help='training loader processes')
group.add_argument('--pin-mem', action='store_true', default=False, help='pin CPU memory in DataLoader')
group.add_argument('--prefetch-factor', type=int, default=2, metavar='N', help='batches in flight per worker')
group.add_argument('--no-prefetcher', action='store_true', default=False, help='normalize on the CPU, in the dataset')


# ---------------------------------------------------------------------------- data

class SyntheticImages(Dataset):
    """ Draws an image per index and augments it: crop + resize, flip, jitter """

    def __init__(self, size, img_size, num_classes, scale, ratio, hflip, jitter, normalize, train=True, seed=0):
        self.size = size
        self.img_size = img_size
        self.num_classes = num_classes
        self.scale, self.ratio = scale, ratio
        self.hflip, self.jitter = hflip, jitter
        self.normalize = normalize
        self.train = train
        self.seed = seed
        self.raw = img_size * 8 // 7

    def __len__(self):
        return self.size

    def _draw(self, index):
        # class decides hue and grating, index decides phase and noise
        rng = np.random.default_rng(self.seed * 1_000_003 + index)
        target = int(rng.integers(self.num_classes))
        crng = np.random.default_rng(target)
        hue = crng.uniform(0.2, 1.0, size=3).astype(np.float32)
        fx, fy = crng.uniform(1, 24, size=2)
        axis = np.linspace(0, 2 * np.pi, self.raw, dtype=np.float32)
        wave = np.sin(fx * axis[None, :] + fy * axis[:, None] + np.float32(rng.uniform(0, 6.28)))
        noise = rng.standard_normal((8, 8, 3), dtype=np.float32)
        noise = noise.repeat(math.ceil(self.raw / 8), 0).repeat(math.ceil(self.raw / 8), 1)[:self.raw, :self.raw]
        img = (wave[:, :, None] * hue + 0.5 * noise) * 48 + 128
        return np.clip(img, 0, 255).astype(np.uint8), target

    def _crop_box(self):
        area = self.raw * self.raw
        for _ in range(10):
            a = random.uniform(*self.scale) * area
            r = math.exp(random.uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            w, h = int(round(math.sqrt(a * r))), int(round(math.sqrt(a / r)))
            if 0 < w <= self.raw and 0 < h <= self.raw:
                return random.randint(0, self.raw - h), random.randint(0, self.raw - w), h, w
        return 0, 0, self.raw, self.raw

    def __getitem__(self, index):
        img, target = self._draw(index)
        if self.train:
            top, left, h, w = self._crop_box()
            img = img[top:top + h, left:left + w]
        x = torch.from_numpy(np.ascontiguousarray(img)).permute(2, 0, 1).unsqueeze(0).float()
        x = F.interpolate(x, size=(self.img_size, self.img_size), mode='bilinear', align_corners=False, antialias=True)[0]
        if self.train:
            if random.random() < self.hflip:
                x = x.flip(-1)
            if self.jitter > 0:
                lo, hi = max(0., 1 - self.jitter), 1 + self.jitter
                x = x * random.uniform(lo, hi)                                          # brightness
                m = x.mean()
                x = (x - m) * random.uniform(lo, hi) + m                                # contrast
                g = x.mean(0, keepdim=True)
                x = (x - g) * random.uniform(lo, hi) + g                                # saturation
        x = x.clamp_(0, 255)
        if self.normalize:
            x = x / 255.
            mean = torch.tensor(IMAGENET_DEFAULT_MEAN).view(3, 1, 1)
            std = torch.tensor(IMAGENET_DEFAULT_STD).view(3, 1, 1)
            return (x - mean) / std, target
        return x.to(torch.uint8), target


class PrefetchLoader:
    """ Moves uint8 batches to the device one step ahead, on a side stream, and normalizes there """

    def __init__(self, loader, device):
        self.loader = loader
        self.device = device
        self.mean = torch.tensor([m * 255 for m in IMAGENET_DEFAULT_MEAN], device=device).view(1, 3, 1, 1)
        self.std = torch.tensor([s * 255 for s in IMAGENET_DEFAULT_STD], device=device).view(1, 3, 1, 1)
        self.is_cuda = device.type == 'cuda'

    def __iter__(self):
        first = True
        if self.is_cuda:
            stream = torch.cuda.Stream(device=self.device)
            stream_context = partial(torch.cuda.stream, stream=stream)
        else:
            stream = None
            stream_context = suppress
        for next_input, next_target in self.loader:
            with stream_context():
                next_input = next_input.to(device=self.device, non_blocking=True)
                next_target = next_target.to(device=self.device, non_blocking=True)
                next_input = next_input.to(torch.float32).sub_(self.mean).div_(self.std)
            if not first:
                yield input, target
            else:
                first = False
            if stream is not None:
                current = torch.cuda.current_stream(device=self.device)
                current.wait_stream(stream)
                next_input.record_stream(current)
                next_target.record_stream(current)
            input, target = next_input, next_target
        yield input, target

    def __len__(self):
        return len(self.loader)


def worker_init(worker_id, seed):
    random.seed(seed + worker_id)
    np.random.seed(seed + worker_id)


# ---------------------------------------------------------------------------- model

class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inplanes, planes, stride=1, downsample=None):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.act1 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.act2 = nn.ReLU(inplace=True)
        self.conv3 = nn.Conv2d(planes, planes * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(planes * self.expansion)
        self.downsample = downsample
        self.act3 = nn.ReLU(inplace=True)

    def forward(self, x):
        shortcut = x
        x = self.act1(self.bn1(self.conv1(x)))
        x = self.act2(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        if self.downsample is not None:
            shortcut = self.downsample(shortcut)
        x += shortcut
        return self.act3(x)


class ResNet(nn.Module):

    def __init__(self, layers, num_classes=1000, drop_rate=0.):
        super().__init__()
        self.grad_checkpointing = False
        self.drop_rate = drop_rate
        self.inplanes = 64
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.act1 = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = self._make_stage(64, layers[0], 1)
        self.layer2 = self._make_stage(128, layers[1], 2)
        self.layer3 = self._make_stage(256, layers[2], 2)
        self.layer4 = self._make_stage(512, layers[3], 2)
        self.fc = nn.Linear(512 * Bottleneck.expansion, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode='fan_out', nonlinearity='relu')
        for m in self.modules():
            if isinstance(m, Bottleneck):
                nn.init.zeros_(m.bn3.weight)

    def _make_stage(self, planes, blocks, stride):
        downsample = None
        if stride != 1 or self.inplanes != planes * Bottleneck.expansion:
            downsample = nn.Sequential(
                nn.Conv2d(self.inplanes, planes * Bottleneck.expansion, 1, stride=stride, bias=False),
                nn.BatchNorm2d(planes * Bottleneck.expansion))
        stage = [Bottleneck(self.inplanes, planes, stride, downsample)]
        self.inplanes = planes * Bottleneck.expansion
        stage += [Bottleneck(self.inplanes, planes) for _ in range(1, blocks)]
        return nn.Sequential(*stage)

    def set_grad_checkpointing(self, enable=True):
        self.grad_checkpointing = enable

    def forward(self, x):
        x = self.maxpool(self.act1(self.bn1(self.conv1(x))))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            if self.grad_checkpointing:
                x = checkpoint(stage, x, use_reentrant=False)
            else:
                x = stage(x)
        x = x.mean((2, 3))
        if self.drop_rate > 0.:
            x = F.dropout(x, p=self.drop_rate, training=self.training)
        return self.fc(x)


def create_model(name, num_classes, drop_rate=0.):
    own = {'resnet26': [2, 2, 2, 2], 'resnet50': [3, 4, 6, 3], 'resnet101': [3, 4, 23, 3]}
    if name in own:
        return ResNet(own[name], num_classes, drop_rate)
    if has_torchvision:
        import torchvision
        return torchvision.models.get_model(name, weights=None, num_classes=num_classes)
    raise RuntimeError(f'Unknown model ({name})')


# ---------------------------------------------------------------------------- utils

class AverageMeter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


class ModelEma(nn.Module):
    """ Keeps a moving average of everything in the model state_dict """

    def __init__(self, model, decay=0.9999, device=None):
        super().__init__()
        self.module = copy.deepcopy(model)
        self.module.eval()
        self.decay = decay
        self.device = device
        if self.device is not None:
            self.module.to(device=device)

    @torch.no_grad()
    def update(self, model):
        for ema_v, model_v in zip(self.module.state_dict().values(), model.state_dict().values()):
            if self.device is not None:
                model_v = model_v.to(device=self.device)
            ema_v.copy_(self.decay * ema_v + (1. - self.decay) * model_v)


def dispatch_clip_grad(parameters, value, mode='norm'):
    if mode == 'norm':
        torch.nn.utils.clip_grad_norm_(parameters, value)
    elif mode == 'value':
        torch.nn.utils.clip_grad_value_(parameters, value)
    else:
        assert False, f'Unknown clip mode ({mode}).'


class NativeScaler:
    def __init__(self, device='cuda'):
        self._scaler = torch.amp.GradScaler(device=device)

    def __call__(self, loss, optimizer, clip_grad=None, clip_mode='norm', parameters=None, need_update=True):
        self._scaler.scale(loss).backward()
        if need_update:
            if clip_grad is not None:
                assert parameters is not None
                self._scaler.unscale_(optimizer)
                dispatch_clip_grad(parameters, clip_grad, mode=clip_mode)
            self._scaler.step(optimizer)
            self._scaler.update()

    def state_dict(self):
        return self._scaler.state_dict()


def param_groups_weight_decay(model, weight_decay):
    decay, no_decay = [], []
    for name, param in model.named_parameters():
        if not param.requires_grad:
            continue
        (no_decay if param.ndim <= 1 or name.endswith('.bias') else decay).append(param)
    return [{'params': no_decay, 'weight_decay': 0.}, {'params': decay, 'weight_decay': weight_decay}]


def create_optimizer(args, model):
    groups = param_groups_weight_decay(model, args.weight_decay)
    kwargs = dict(lr=args.lr)
    if args.opt_fused:
        kwargs['fused'] = True
    else:
        kwargs['foreach'] = args.opt_foreach
    if args.opt == 'sgd':
        return torch.optim.SGD(groups, momentum=args.momentum, nesterov=True, **kwargs)
    if args.opt == 'adamw':
        return torch.optim.AdamW(groups, eps=args.opt_eps or 1e-8, **kwargs)
    raise ValueError(f'Unknown optimizer ({args.opt})')


def lr_at(args, num_updates):
    if num_updates < args.warmup_updates:
        return args.lr * (num_updates + 1) / args.warmup_updates
    if args.sched == 'none':
        return args.lr
    t = (num_updates - args.warmup_updates) / max(1, args.max_updates - args.warmup_updates)
    return args.min_lr + 0.5 * (args.lr - args.min_lr) * (1 + math.cos(math.pi * min(1., t)))


# ---------------------------------------------------------------------------- main

def make_loader(args, device, train=True):
    prefetcher = not args.no_prefetcher
    dataset = SyntheticImages(
        args.num_samples if train else args.val_samples, args.img_size, args.num_classes,
        scale=tuple(args.scale), ratio=tuple(args.ratio), hflip=args.hflip, jitter=args.color_jitter,
        normalize=not prefetcher, train=train, seed=args.seed + (0 if train else 1))
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        shuffle=train,
        num_workers=args.workers,
        pin_memory=args.pin_mem,
        drop_last=train,
        prefetch_factor=args.prefetch_factor if args.workers > 0 else None,
        worker_init_fn=partial(worker_init, seed=args.seed),
    )
    return PrefetchLoader(loader, device) if prefetcher else loader


def main():
    logging.basicConfig(level=logging.INFO, format='%(message)s')
    args = parser.parse_args()

    device = torch.device(args.device or ('cuda' if torch.cuda.is_available() else 'cpu'))
    if device.type == 'cuda':
        torch.backends.cudnn.benchmark = not args.deterministic
        torch.backends.cudnn.deterministic = args.deterministic

    # resolve AMP arguments
    use_amp = args.amp
    amp_dtype = torch.float16
    if args.amp:
        assert args.model_dtype is None or args.model_dtype == 'float32', 'float32 model dtype must be used with AMP'
        assert args.amp_dtype in ('float16', 'bfloat16')
        if args.amp_dtype == 'bfloat16':
            amp_dtype = torch.bfloat16
    model_dtype = getattr(torch, args.model_dtype) if args.model_dtype else torch.float32

    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    random.seed(args.seed)

    model = create_model(args.model, args.num_classes, args.drop)
    if args.grad_checkpointing:
        model.set_grad_checkpointing(enable=True)
    _logger.info(f'Model {args.model} created, param count:{sum(m.numel() for m in model.parameters())}')

    model.to(device=device, dtype=model_dtype)
    if args.channels_last:
        model.to(memory_format=torch.channels_last)

    optimizer = create_optimizer(args, model)

    # setup automatic mixed-precision (AMP) loss scaling and op casting
    amp_autocast = suppress
    loss_scaler = None
    if use_amp:
        amp_autocast = partial(torch.autocast, device_type=device.type, dtype=amp_dtype)
        if amp_dtype == torch.float16:
            loss_scaler = NativeScaler(device=device.type)
        _logger.info(f'Using native Torch AMP ({args.amp_dtype}). Training in mixed precision.')
    else:
        _logger.info(f'AMP not enabled. Training in {model_dtype}.')

    # setup exponential moving average of model weights
    model_ema = None
    if args.model_ema:
        model_ema = ModelEma(model, decay=args.model_ema_decay, device='cpu' if args.model_ema_force_cpu else None)

    train_model = model
    if args.torchcompile:
        assert has_compile, 'A version of torch w/ torch.compile() is required for --compile.'
        train_model = torch.compile(model, backend=args.torchcompile, mode=args.torchcompile_mode)

    loader_train = make_loader(args, device, train=True)
    train_loss_fn = nn.CrossEntropyLoss(label_smoothing=args.smoothing).to(device=device)

    step_times = train(args, train_model, model, loader_train, optimizer, train_loss_fn, device, model_dtype,
                       amp_autocast=amp_autocast, loss_scaler=loss_scaler, model_ema=model_ema)

    if args.val_samples > 0:
        acc = validate(args, model_ema.module.to(device) if model_ema is not None else model,
                       make_loader(args, device, train=False), device, model_dtype, amp_autocast)
        _logger.info(f'Test: acc@1 {acc:.3f}')

    later = step_times[len(step_times) // 2:]
    mean = sum(later) / len(later)
    _logger.info(f'images/s {args.batch_size * args.grad_accum_steps / mean:.1f}')
    print(f'mean step ms {mean * 1000:.3f}', flush=True)


def train(args, model, raw_model, loader, optimizer, loss_fn, device, model_dtype,
          amp_autocast=suppress, loss_scaler=None, model_ema=None):
    """ One step time per optimizer update: from the end of the update before to its own end, data included """
    prefetcher = not args.no_prefetcher
    update_time_m, data_time_m, losses_m = AverageMeter(), AverageMeter(), AverageMeter()
    accum_steps = args.grad_accum_steps
    step_times = []
    num_updates = 0
    mixup_rng = np.random.default_rng(args.seed)

    model.train()
    optimizer.zero_grad()
    done = False
    while not done:
        data_start_time = update_start_time = time.time()
        for batch_idx, (input, target) in enumerate(loader):
            need_update = (batch_idx + 1) % accum_steps == 0
            if not prefetcher:
                input, target = input.to(device), target.to(device)
            input = input.to(dtype=model_dtype)
            if args.channels_last:
                input = input.contiguous(memory_format=torch.channels_last)
            target_b, lam = None, 1.
            if args.mixup > 0:
                lam = float(mixup_rng.beta(args.mixup, args.mixup))
                input = input * lam + input.flip(0) * (1. - lam)
                target_b = target.flip(0)
            data_time_m.update(time.time() - data_start_time)

            for group in optimizer.param_groups:
                group['lr'] = lr_at(args, num_updates)

            with amp_autocast():
                output = model(input)
                loss = loss_fn(output, target)
                if target_b is not None:
                    loss = lam * loss + (1. - lam) * loss_fn(output, target_b)
                if accum_steps > 1:
                    loss = loss / accum_steps

            if loss_scaler is not None:
                loss_scaler(loss, optimizer, clip_grad=args.clip_grad, clip_mode=args.clip_mode,
                            parameters=raw_model.parameters(), need_update=need_update)
            else:
                loss.backward()
                if need_update:
                    if args.clip_grad is not None:
                        dispatch_clip_grad(raw_model.parameters(), args.clip_grad, mode=args.clip_mode)
                    optimizer.step()

            losses_m.update(loss.item() * accum_steps, input.size(0))
            if not need_update:
                data_start_time = time.time()
                continue

            num_updates += 1
            optimizer.zero_grad()
            if model_ema is not None:
                model_ema.update(raw_model)

            if device.type == 'cuda':
                torch.cuda.synchronize()
            time_now = time.time()
            update_time_m.update(time_now - update_start_time)
            step_times.append(time_now - update_start_time)
            update_start_time = time_now

            if num_updates % args.log_interval == 0 or num_updates == args.max_updates:
                lr = optimizer.param_groups[0]['lr']
                n = args.batch_size * accum_steps
                _logger.info(
                    f'Train: [{num_updates:>4d}/{args.max_updates}]  '
                    f'Loss: {losses_m.val:#.4g} ({losses_m.avg:#.4g})  '
                    f'Time: {update_time_m.val:.3f}s, {n / update_time_m.val:>7.2f}/s  '
                    f'({update_time_m.avg:.3f}s, {n / update_time_m.avg:>7.2f}/s)  '
                    f'LR: {lr:.3e}  Data: {data_time_m.val:.3f} ({data_time_m.avg:.3f})')
            if num_updates >= args.max_updates:
                done = True
                break
            data_start_time = time.time()
    return step_times


@torch.no_grad()
def validate(args, model, loader, device, model_dtype, amp_autocast=suppress):
    top1_m = AverageMeter()
    model.eval()
    for input, target in loader:
        if args.no_prefetcher:
            input, target = input.to(device), target.to(device)
        input = input.to(dtype=model_dtype)
        if args.channels_last:
            input = input.contiguous(memory_format=torch.channels_last)
        with amp_autocast():
            output = model(input)
        top1_m.update((output.argmax(1) == target).float().mean().item() * 100, input.size(0))
    return top1_m.avg


if __name__ == '__main__':
    main()
