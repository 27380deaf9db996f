"""Compares lupine.tokenizers with the package tokenizers on lines in many scripts.

    python spec/sweep/tokenizers_compare.py [--lines N] [--seed N] [--keep FOLDER] [KIND ...]

needs the package tokenizers, and lupine built (LUPINE, default build/lupine). Trains small
tokenizers of several kinds, writes N lines (10,000) and their ids, and has
spec/sweep/tokenizers_compare.lua encode the same lines: ids must be equal, and texts decoded
from them, too. --keep FOLDER keeps the files. --record FOLDER writes what spec/lupine/tokenizers knows.
"""

import argparse
import glob
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


# ---- lines -----------------------------------------------------------------------------

def scripts():
    by_script = {}
    for c in range(0x21, 0x110000):
        ch = chr(c)
        if unicodedata.category(ch) in ("Cn", "Cs", "Co", "Cc"):
            continue
        name = unicodedata.name(ch, "X").split()[0]
        by_script.setdefault(name, []).append(ch)
    return {k: v for k, v in by_script.items() if len(v) >= 20}


PYTHON = os.path.dirname(os.__file__) + "/*.py"


def source_lines(rng, files):
    out = []
    for path in sorted(glob.glob(files)):
        with open(path, encoding="utf-8", errors="ignore") as f:
            out += [line.rstrip("\n") for line in f if line.strip()]
    rng.shuffle(out)
    return out


EMOJI = [chr(c) for c in list(range(0x1F600, 0x1F650)) + list(range(0x1F466, 0x1F479))]
TONES = [chr(c) for c in range(0x1F3FB, 0x1F400)]
MARKS = [chr(c) for c in list(range(0x300, 0x34F)) + list(range(0x591, 0x5BE)) + list(range(0x64B, 0x653))]
SPACES = " \t\n\r\x0b\x0c\x1c\x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000\u180e\u200b\u200d\ufeff"
SPECIAL = ["<|endoftext|>", "[MASK]", "[SEP]", "<mask>", "<s>", "</s>", "[CLS]", "<extra>", "don't", "'S", "ſ"]


def line(rng, kind, by_script, source):
    words = lambda chars, n: "".join(rng.choice(chars) for _ in range(n))
    if kind == "source":
        return source[rng.randrange(len(source))]
    if kind == "script":
        chars = by_script[rng.choice(list(by_script))]
        some = [rng.choice(chars) for _ in range(30)]
        return rng.choice([" ", "", "  ", ", "]).join(
            words(some, rng.randint(1, 8)) for _ in range(rng.randint(1, 10)))
    if kind == "any":
        chars = by_script[rng.choice(list(by_script))] + by_script[rng.choice(list(by_script))]
        return words(chars + list(" .,'-0189aZ"), rng.randint(1, 60))
    if kind == "emoji":
        out = ""
        for _ in range(rng.randint(1, 8)):
            out += rng.choice(EMOJI) + rng.choice(["", rng.choice(TONES), "\u200d" + rng.choice(EMOJI), "\ufe0f"])
            out += rng.choice(["", " ", "ok"])
        return out
    if kind == "marks":
        base = source[rng.randrange(len(source))][:40]
        text = "".join(c + (rng.choice(MARKS) * rng.randint(0, 2) if rng.random() < 0.3 else "") for c in base)
        return unicodedata.normalize(rng.choice(["NFC", "NFD", "NFKD"]), text + " Å é ﬁ ① İ ẞ ǆ")
    if kind == "space":
        return words(list(SPACES) * 2 + list("ab.1!\x00\x01\x7f\u0600\ufffd"), rng.randint(1, 50))
    if kind == "special":
        return "".join(rng.choice(SPECIAL + [" ", "a", "word", "  ", "1", "é"]) for _ in range(rng.randint(1, 14)))
    if kind == "long":
        return words(rng.choice(["a", "ab", "aé", " ", "=-", "0123", "日本語"]), rng.randint(50, 400))
    return ""


KINDS = {"source": 30, "script": 25, "any": 12, "emoji": 6, "marks": 8, "space": 7, "special": 8, "long": 3, "empty": 1}


def make_lines(n, seed, files=PYTHON):
    rng = random.Random(seed)
    by_script, source = scripts(), source_lines(rng, files)
    kinds = rng.choices(list(KINDS), list(KINDS.values()), k=n)
    return [line(rng, kind, by_script, source) for kind in kinds]


# ---- tokenizers --------------------------------------------------------------------------

def byte_level(regex=None, prefix=False, **model):
    t = Tokenizer(models.BPE(**model))
    if regex:
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(regex), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False)])
    else:
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    t.decoder = decoders.ByteLevel()
    return t


def bpe_trainer(size, special, **more):
    return trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                               initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **more)


def gpt2(text, size):
    t = byte_level()
    t.train_from_iterator(text, bpe_trainer(size, ["<|endoftext|>"]))
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t


def roberta(text, size):
    t = byte_level(prefix=True)
    t.train_from_iterator(text, bpe_trainer(size, ["<s>", "<pad>", "</s>", "<unk>"]))
    t.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return t


def llama3(text, size, regex=LLAMA3):
    t = byte_level(regex, ignore_merges=True)
    t.train_from_iterator(text, bpe_trainer(size, ["<s>", "<|endoftext|>"]))
    t.post_processor = processors.Sequence([
        processors.ByteLevel(), processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 0)])])
    t.add_tokens([AddedToken("don't", single_word=True), AddedToken("<extra>", rstrip=True)])
    return t


def gpt4o(text, size):
    return llama3(text, size, GPT4O)


def bert(text, size, lowercase=True):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator(text, trainers.WordPieceTrainer(vocab_size=size, special_tokens=special,
                                                          show_progress=False, limit_alphabet=600))
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    t.decoder = decoders.WordPiece()
    t.add_tokens([AddedToken("Don't", normalized=True), AddedToken("É", normalized=True, single_word=True)])
    return t


def bert_cased(text, size):
    t = bert(text, size, False)
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    t.enable_truncation(20)
    return t


def llama2(text, size):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)]
    t.train_from_iterator([x[:200] for x in text], trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, show_progress=False, limit_alphabet=300, max_token_length=12))
    d = json.loads(t.to_str())
    d["added_tokens"] = [x for x in d["added_tokens"] if not x["content"].startswith("<0x")]
    t = Tokenizer.from_str(json.dumps(d))
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    return t


def metaspace(text, size):
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    t.train_from_iterator(text, trainers.BpeTrainer(vocab_size=size, special_tokens=["<unk>", "<s>", "</s>"],
                                                    show_progress=False, limit_alphabet=300))
    t.decoder = decoders.Metaspace(prepend_scheme="first")
    return t


def suffixed(text, size):
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.NFC()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)])
    t.train_from_iterator(text, trainers.BpeTrainer(vocab_size=size, special_tokens=["<unk>"], show_progress=False,
                                                    end_of_word_suffix="</w>", limit_alphabet=400))
    t.decoder = decoders.BPEDecoder(suffix="</w>")
    return t


def words(text, size):
    t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Replace(Regex(r"\d+"), "0")])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.Split("e", "merged_with_previous"), pre_tokenizers.Split(Regex("[A-Z]"), "merged_with_next"),
        pre_tokenizers.Split(Regex(r"\w+"), "removed", invert=True)])
    t.train_from_iterator(text, trainers.WordLevelTrainer(vocab_size=size, special_tokens=["[UNK]"],
                                                          show_progress=False))
    return t


MAKERS = {f.__name__: f for f in (gpt2, roberta, llama3, gpt4o, bert, bert_cased, llama2, metaspace, suffixed, words)}


def fnv(numbers):
    h = 0xCBF29CE484222325
    for n in numbers:
        h = ((h ^ n) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return "%016x" % h


def write_case(t, lines, folder):
    t.save(os.path.join(folder, "tokenizer.json"))
    pairs = [(lines[i], lines[i + 1]) for i in range(0, min(400, len(lines) - 1), 2)]
    single = t.encode_batch(lines)
    double = t.encode_batch(pairs)
    with open(os.path.join(folder, "case.json"), "w") as f:
        json.dump({"lines": lines, "ids": [e.ids for e in single], "types": [e.type_ids for e in double],
                   "pairs": [e.ids for e in double], "texts": [t.decode(e.ids) for e in single],
                   "size": t.get_vocab_size(), "hash": fnv(i for e in single for i in e.ids + [1 << 40])}, f)


# Blocks that are full: first character, number of characters.
BLOCKS = [(0x20, 95), (0x20, 95), (0x20, 95), (0x41, 26), (0x61, 26), (0x30, 10), (0xA0, 96), (0x100, 128),
          (0x300, 112), (0x391, 17), (0x3B1, 25), (0x410, 64), (0x5D0, 27), (0x621, 26), (0x64B, 21),
          (0x905, 53), (0xE01, 58), (0x10A0, 38), (0x1100, 256), (0x1200, 73), (0x1E00, 256), (0x2000, 101),
          (0x20A0, 31), (0x2100, 140), (0x2190, 256), (0x3041, 86), (0x30A1, 90), (0x4E00, 2000), (0xAC00, 4000),
          (0xFB00, 7), (0xFF01, 94), (0x1D400, 85), (0x1F300, 256), (0x1F600, 80)]


def formula_lines(n):
    """Lines by a linear congruential generator; spec/lupine/tokenizers makes the same."""
    x, out = 1, []

    def draw(limit):
        nonlocal x
        x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
        return (x >> 33) % limit

    for _ in range(n):
        text = ""
        for _ in range(draw(12)):
            first, size = BLOCKS[draw(len(BLOCKS))]
            text += "".join(chr(first + draw(size)) for _ in range(1 + draw(7))) + " " * draw(3)
        out.append(text)
    return out


def record(folder, size):
    lines = make_lines(100, 9, "docs/*.md")
    text = [x.replace("\0", "") for x in make_lines(3000, 10, "docs/*.md")]
    long = formula_lines(2000)
    out = {"lines": lines, "kinds": {}}
    for name, make in MAKERS.items():
        t = make(text, size)
        with open(os.path.join(folder, name + ".json"), "w") as f:
            f.write(json.dumps(json.loads(t.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n")
        encoded = t.encode_batch(long)
        pairs = [t.encode(lines[i], lines[i + 1]) for i in (0, 2, 4)]
        out["kinds"][name] = {
            "ids": [e.ids for e in t.encode_batch(lines)], "size": t.get_vocab_size(),
            "texts": [t.decode(t.encode(x).ids) for x in lines[:40]],
            "pairs": [e.ids for e in pairs], "types": [e.type_ids for e in pairs],
            "hash": fnv(i for e in encoded for i in e.ids + [1 << 40]),
            "decoded": fnv(b for e in encoded[:500] for b in t.decode(e.ids).encode() + b"\n")}
    with open(os.path.join(folder, "facts.json"), "w") as f:
        json.dump(out, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=int, default=2000)
    parser.add_argument("--keep")
    parser.add_argument("--record")
    parser.add_argument("kinds", nargs="*")
    args = parser.parse_args()
    lines = make_lines(args.lines, args.seed)
    # jansson, which reads the file, has no keys with a NUL.
    training = [x.replace("\0", "") for x in make_lines(4000, args.seed + 1)]
    if args.record:
        record(args.record, args.size)
        return 0
    failed = 0
    lupine = os.environ.get("LUPINE", "build/lupine")
    for name in args.kinds or MAKERS:
        with tempfile.TemporaryDirectory() as folder:
            if args.keep:
                folder = os.path.join(args.keep, name)
                os.makedirs(folder, exist_ok=True)
            write_case(MAKERS[name](training, args.size), lines, folder)
            failed += subprocess.run([lupine, "spec/sweep/tokenizers_compare.lua", folder, name]).returncode != 0
    print("%d failed" % failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
