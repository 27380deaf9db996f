"""The workloads of ../more/workloads.lua and the networks of ../more, with the
same names of parameters, in PyTorch. A network with `own_loss` returns it."""
import torch
import torch.nn.functional as F
from torch import nn

from networks import Attention


class ChannelNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-6)

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Next(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(F.gelu(self.wide(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext():
    layers, before = [], None
    for stage, width in enumerate((96, 192, 384, 768)):
        if before is None:
            layers = [nn.Conv2d(3, width, 4, 4), ChannelNorm(width)]
        else:
            layers += [ChannelNorm(before), nn.Conv2d(before, width, 2, 2)]
        layers += [Next(width) for _ in range(3 if stage == 2 else 1)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.LayerNorm(768, eps=1e-6), nn.Linear(768, 100))


def normed(before, after, kernel, stride, groups, act=None):
    layers = [nn.Conv2d(before, after, kernel, stride, kernel // 2,
                        groups=groups, bias=False), nn.BatchNorm2d(after)]
    return nn.Sequential(*layers, *([act(inplace=True)] if act else []))


class Inverted(nn.Module):
    def __init__(self, before, after, stride, wider):
        super().__init__()
        width = before * wider
        self.adds = stride == 1 and before == after
        layers = [normed(width, width, 3, stride, width, nn.ReLU6),
                  normed(width, after, 1, 1, 1)]
        if wider > 1:
            layers.insert(0, normed(before, width, 1, 1, 1, nn.ReLU6))
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        y = self.layers(x)
        return x + y if self.adds else y


def mobilenet():
    layers, before = [normed(3, 32, 3, 2, 1, nn.ReLU6)], 32
    for wider, after, blocks, stride in (
            (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
            (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(blocks):
            layers.append(Inverted(before, after, 1 if i else stride, wider))
            before = after
    return nn.Sequential(
        *layers, normed(before, 1280, 1, 1, 1, nn.ReLU6),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))


class Bottleneck(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        self.layers = nn.Sequential(
            normed(before, width, 1, 1, 1, nn.ReLU),
            normed(width, width, 3, stride, 1, nn.ReLU),
            normed(width, 4 * width, 1, 1, 1))
        self.short = nn.Identity()
        if stride > 1 or before != 4 * width:
            self.short = normed(before, 4 * width, 1, stride, 1)

    def forward(self, x):
        return F.relu(self.layers(x) + self.short(x), inplace=True)


def resnet50():
    layers, before = [normed(3, 64, 7, 2, 1, nn.ReLU),
                      nn.MaxPool2d(3, 2, 1)], 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for i in range(blocks):
            stride = 2 if stage and not i else 1
            layers.append(Bottleneck(before, width, stride))
            before = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(2048, 1000))


def double(before, after):
    return nn.Sequential(normed(before, after, 3, 1, 1, nn.ReLU),
                         normed(after, after, 3, 1, 1, nn.ReLU))


class UNet(nn.Module):
    def __init__(self, width, levels, classes):
        super().__init__()
        self.down, self.up, self.wide = (nn.ModuleList() for _ in range(3))
        self.down.append(double(3, width))
        for i in range(1, levels + 1):
            after = width << i
            self.down.append(double(after // 2, after))
            self.up.append(nn.ConvTranspose2d(after, after // 2, 2, 2))
            self.wide.append(double(after, after // 2))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skips = []
        for i, layer in enumerate(self.down):
            x = layer(F.max_pool2d(x, 2) if i else x)
            skips.append(x)
        for i in range(len(skips) - 2, -1, -1):
            x = self.wide[i](torch.cat([skips[i], self.up[i](x)], 1))
        return self.head(x)


class VAE(nn.Module):
    def __init__(self, width, latent):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 4, 2, 1), nn.ReLU(),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1), nn.ReLU(), nn.Flatten())
        self.mean = nn.Linear(64 * width, latent)
        self.spread = nn.Linear(64 * width, latent)
        self.wide = nn.Linear(latent, 64 * width)
        self.decoder = nn.Sequential(
            nn.Unflatten(1, (4 * width, 4, 4)),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Sigmoid())

    def forward(self, x, noise):
        y = self.encoder(x)
        mean, spread = self.mean(y), self.spread(y)
        z = mean + noise * torch.exp(spread * 0.5)
        made = self.decoder(self.wide(z))
        apart = (spread + 1 - mean.pow(2) - spread.exp()).mean() * -0.5
        return F.mse_loss(made, x) + apart


class GAN(nn.Module):
    def __init__(self, width, latent):
        super().__init__()

        def up(before, after, *how):
            return nn.ConvTranspose2d(before, after, 4, *how, bias=False)

        def down(before, after, *how):
            return nn.Conv2d(before, after, 4, *how, bias=False)
        self.generator = nn.Sequential(
            up(latent, 4 * width), nn.BatchNorm2d(4 * width), nn.ReLU(),
            up(4 * width, 2 * width, 2, 1), nn.BatchNorm2d(2 * width),
            nn.ReLU(), up(2 * width, width, 2, 1), nn.BatchNorm2d(width),
            nn.ReLU(), up(width, 3, 2, 1), nn.Tanh())
        self.discriminator = nn.Sequential(
            down(3, width, 2, 1), nn.LeakyReLU(0.2),
            down(width, 2 * width, 2, 1), nn.BatchNorm2d(2 * width),
            nn.LeakyReLU(0.2), down(2 * width, 4 * width, 2, 1),
            nn.BatchNorm2d(4 * width), nn.LeakyReLU(0.2),
            down(4 * width, 1), nn.Flatten(0))

    def forward(self, _, noise):
        return F.softplus(-self.discriminator(self.generator(noise))).mean()

    def judge(self, real, noise):
        fake = self.generator(noise).detach()
        return (F.softplus(-self.discriminator(real)).mean()
                + F.softplus(self.discriminator(fake)).mean())

    def phases(self):
        """What a step does in turn: a loss, and the part that learns by it."""
        return [(self.judge, self.discriminator), (self, self.generator)]


class Layer(Attention):
    def __init__(self, width, heads, dropout=0.0, gelu="none"):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.drop = nn.Dropout(dropout)
        inner = [nn.Linear(width, 4 * width), nn.GELU(gelu)]
        outer = [nn.Linear(4 * width, width)]
        if dropout > 0:
            inner, outer = ([*part, nn.Dropout(dropout)]
                            for part in (inner, outer))
        self.mlp = nn.Sequential(*inner, *outer)

    def attention(self, q, k, v, causal, mask=None):
        """Of heads as the second dimension; `mask` hides where it is false."""
        if Attention.fused:
            return F.scaled_dot_product_attention(q, k, v, mask,
                                                  is_causal=causal)
        score = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        if causal:
            t = q.shape[2]
            mask = torch.ones(t, t, dtype=torch.bool).tril()
        if mask is not None:
            score = score.masked_fill(~mask, float("-inf"))
        return F.softmax(score, -1) @ v

    def forward(self, x, causal=False, attend=None):
        b, t, d = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, 3, self.heads,
                                           d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = (attend(self, q, k, v) if attend
             else self.attention(q, k, v, causal))
        x = x + self.drop(self.proj(y.transpose(1, 2).reshape(b, t, d)))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, width, heads, layers, patch, side, dropout):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.kind = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(
            torch.zeros(1, (side // patch) ** 2, width))
        self.drop = nn.Dropout(dropout)
        self.layers = nn.Sequential(
            *(Layer(width, heads, dropout) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.position
        x = torch.cat([self.kind.expand(len(x), -1, -1), x], 1)
        return self.head(self.norm(self.layers(self.drop(x)))[:, 0])


def mlp(width, inner):
    return nn.Sequential(nn.Linear(width, inner), nn.GELU(),
                         nn.Linear(inner, width))


class Mixer(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = mlp(tokens, width // 2)
        self.channels = mlp(width, 4 * width)

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Patches(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 16, 16)

    def forward(self, x):
        return self.conv(x).flatten(2).transpose(1, 2)


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(1)


def mixer():
    return nn.Sequential(Patches(256), *(Mixer(64, 256) for _ in range(6)),
                         nn.LayerNorm(256), Mean(), nn.Linear(256, 100))


class GPT2(nn.Module):
    def __init__(self, layers, width, heads, length, vocabulary):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads, gelu="tanh")
                                    for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token.weight

    def forward(self, ids):
        x = self.token(ids) + self.position(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x, True)
        return self.head(self.norm(x)).flatten(0, 1)


class Writer(GPT2):
    def __init__(self, layers, width, heads, length, vocabulary):
        super().__init__(layers, width, heads, length, vocabulary)
        self.length = length
        for i in range(layers):
            for name in ("keys", "values"):
                self.register_buffer("%s%d" % (name, i), torch.zeros(
                    1, heads, length, width // heads), persistent=False)

    def forward(self, ids, place):
        place = place.flatten()
        x = self.token(ids) + self.position(place)
        seen = (torch.arange(self.length) <= place).view(1, 1, 1, -1)
        for i, layer in enumerate(self.layers):
            def attend(layer, q, k, v):
                keys = getattr(self, "keys%d" % i)
                values = getattr(self, "values%d" % i)
                keys.index_copy_(2, place, k)
                values.index_copy_(2, place, v)
                return layer.attention(q, keys, values, False, seen)
            x = layer(x, attend=attend)
        return self.head(self.norm(x)).flatten(0, 1)


class Translator(nn.Module):
    def __init__(self, width, words, length):
        super().__init__()
        self.source = nn.Embedding(words, width)
        self.text = nn.Embedding(words, width)
        self.position = nn.Embedding(length, width)
        self.body = nn.Transformer(width, 4, 3, 3, 4 * width, 0.0,
                                   batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, source, text, target):
        n = source.shape[1]
        places = self.position(torch.arange(n))
        later = torch.ones(n, n, dtype=torch.bool).triu(1)
        padding = source == 0
        y = self.body(self.source(source) + places, self.text(text) + places,
                      tgt_mask=later, src_key_padding_mask=padding,
                      memory_key_padding_mask=padding,
                      tgt_key_padding_mask=text == 0, tgt_is_causal=True)
        return F.cross_entropy(self.head(y).flatten(0, 1), target.flatten(),
                               ignore_index=0)


class Tagger(nn.Module):
    def __init__(self, words, width, tags):
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=0)
        self.gru = nn.GRU(width, width, 2, batch_first=True,
                          bidirectional=True)
        self.head = nn.Linear(2 * width, tags)

    def forward(self, ids, target):
        y = self.head(self.gru(self.embedding(ids))[0]).flatten(0, 1)
        return F.cross_entropy(y, target.flatten(), ignore_index=0)


def perceptron(*widths):
    layers = []
    for before, after in zip(widths, widths[1:]):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Recommender(nn.Module):
    def __init__(self, tables, rows, width):
        super().__init__()
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = perceptron(13, 128, 64, width)
        self.top = perceptron(width + (tables + 1) * tables // 2, 256, 128, 2)
        n = tables + 1
        self.register_buffer(
            "pairs", torch.ones(n, n).tril(-1).flatten().nonzero().flatten(),
            persistent=False)

    def forward(self, real, ids):
        x = self.bottom(real)
        each = torch.stack([x, *(bag(ids[:, i]) for i, bag
                                 in enumerate(self.tables))], 1)
        products = (each @ each.transpose(1, 2)).flatten(1)
        products = products.index_select(1, self.pairs)
        return self.top(torch.cat([x, products], 1))


class Dilated(nn.Module):
    def __init__(self, width, skip, dilation):
        super().__init__()
        self.before = dilation
        self.gates = nn.Conv1d(width, 2 * width, 2, dilation=dilation)
        self.skip = nn.Conv1d(width, skip, 1)
        self.out = nn.Conv1d(width, width, 1)

    def forward(self, x):
        a, b = self.gates(F.pad(x, (self.before, 0))).chunk(2, 1)
        y = torch.tanh(a) * torch.sigmoid(b)
        return x + self.out(y), self.skip(y)


class WaveNet(nn.Module):
    def __init__(self, width, skip, layers):
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        self.layers = nn.ModuleList(
            Dilated(width, skip, 1 << i) for i in range(layers))
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(skip, skip, 1),
                                  nn.ReLU(), nn.Conv1d(skip, 256, 1))

    def forward(self, ids):
        x, total = self.embedding(ids).transpose(1, 2), 0
        for layer in self.layers:
            x, skip = layer(x)
            total = total + skip
        return self.head(total)


def feed(width):
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width),
                         nn.SiLU(), nn.Linear(4 * width, width))


class Conformer(nn.Module):
    def __init__(self, width, heads, kernel):
        super().__init__()
        self.feed1, self.feed2 = feed(width), feed(width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.conv = nn.Sequential(
            nn.Conv1d(width, 2 * width, 1), nn.GLU(1),
            nn.Conv1d(width, width, kernel, padding=kernel // 2,
                      groups=width),
            nn.BatchNorm1d(width), nn.SiLU(), nn.Conv1d(width, width, 1))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        x = x + self.feed1(x) * 0.5
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.conv(self.norm2(x).transpose(1, 2)).transpose(1, 2)
        return self.norm(x + self.feed2(x) * 0.5)


def conformer():
    return nn.Sequential(nn.Linear(80, 144), Conformer(144, 4, 31),
                         Conformer(144, 4, 31), Mean(), nn.Linear(144, 30))


MOMENTUM = (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9})
ADAM = (torch.optim.Adam, {"lr": 2e-4, "betas": (0.5, 0.999)})
ADAMW = (torch.optim.AdamW, {"lr": 1e-4})
# Where dropout draws differ, or few pictures amplify rounding.
GENTLE = (torch.optim.AdamW, {"lr": 1e-5})
SLOW = (torch.optim.SGD, {"lr": 1e-4, "momentum": 0.9})
WORKLOADS = {
    "convnext": (8, convnext, ADAMW),
    "mobilenet": (16, mobilenet, MOMENTUM),
    "mobilenet-inference": (1, mobilenet, None),
    "resnet50": (4, resnet50, SLOW),
    "resnet50-inference": (4, resnet50, None),
    "unet": (4, lambda: UNet(32, 3, 4), ADAMW),
    "vae": (32, lambda: VAE(32, 64), ADAM),
    "gan": (32, lambda: GAN(64, 100), ADAM),
    "vit": (2, lambda: ViT(384, 6, 12, 16, 224, 0.1), GENTLE),
    "mixer": (16, mixer, ADAMW),
    "gpt2": (1, lambda: GPT2(12, 768, 12, 1024, 50257), ADAMW),
    "gpt2-token": (1, lambda: Writer(12, 768, 12, 256, 50257), None),
    "translator": (8, lambda: Translator(256, 4000, 64), ADAMW),
    "bigru": (16, lambda: Tagger(5000, 192, 20), ADAMW),
    "dlrm": (256, lambda: Recommender(8, 100000, 16), ADAMW),
    "wavenet": (4, lambda: WaveNet(64, 128, 10), ADAMW),
    "conformer": (8, conformer, ADAMW),
}
OWN_LOSS = {"vae", "gan", "translator", "bigru"}
